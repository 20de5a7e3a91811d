/** The files of a running sandbox: browse, view, edit, upload, download, remove. */
import { type Signal, useSignal } from '@preact/signals';
import type { FileEntry, Files, SandboxId } from '@torpor/sdk';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { saveAs } from '../ui/download.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { attempt, say } from '../ui/toasts.tsx';
import { bytes, clockTime, plural } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { Asleep } from './asleep.tsx';
import { type DroppedFile, droppedFiles } from './dropped-files.ts';
import { FileEditor } from './file-editor.tsx';
import { crumbsOf, joined, parentOf, shownName } from './file-paths.ts';
import type { TabProps } from './sandbox-view.tsx';

function filesOf(id: SandboxId): Files {
  return torpor().sandboxes.files(id);
}

export function FilesTab({ sandbox }: TabProps) {
  const directory = useSignal('~');
  const opened = useSignal<FileEntry | undefined>(undefined);
  if (sandbox.state !== 'running')
    return <Asleep sandbox={sandbox} what="Its files can be read while it runs." />;
  return opened.value === undefined ? (
    <Directory id={sandbox.id} directory={directory} opened={opened} />
  ) : (
    <FileEditor
      id={sandbox.id}
      file={opened.value}
      onClose={() => {
        opened.value = undefined;
      }}
    />
  );
}

interface DirectoryProps {
  readonly id: SandboxId;
  readonly directory: Signal<string>;
  readonly opened: Signal<FileEntry | undefined>;
}

function Directory({ id, directory, opened }: DirectoryProps) {
  const isOver = useSignal(false);
  const { value, error, reload } = useLoaded(
    (signal) => filesOf(id).list(directory.value, { wake: false, signal }),
    [id, directory.value],
  );
  const path = value?.path ?? directory.value;
  const upload = async (chosen: readonly DroppedFile[]) => {
    let done = 0;
    for (const { path: name, file } of chosen) {
      if ((await attempt(() => filesOf(id).write(joined(path, name), file))) !== undefined) done++;
    }
    const [first] = chosen;
    if (done === 1 && chosen.length === 1 && first !== undefined)
      say(`${shownName(first.path)} is uploaded.`);
    else if (done > 0) say(`${done} of ${plural(chosen.length, 'file')} uploaded.`);
    reload();
  };
  const open = (entry: FileEntry) => {
    if (entry.type === 'directory') directory.value = entry.path;
    else opened.value = entry;
  };
  const remove = async ({ name, path: at, type }: FileEntry) => {
    const text = type === 'directory' ? 'Everything in it is removed too.' : 'This cannot be undone.';
    if (!(await confirm(`Remove ${shownName(name)}?`, text, 'Remove'))) return;
    await attempt(() => filesOf(id).remove(at), 'Removed.');
    reload();
  };
  return (
    <section
      class={`panel files${isOver.value ? ' drop' : ''}`}
      aria-label="Files"
      onDragOver={(event) => {
        event.preventDefault();
        isOver.value = true;
      }}
      onDragLeave={({ currentTarget, relatedTarget }) => {
        // Also fired between the rows.
        if (!(relatedTarget instanceof Node && currentTarget.contains(relatedTarget))) isOver.value = false;
      }}
      onDrop={(event) => {
        event.preventDefault();
        isOver.value = false;
        if (!canChange()) return;
        const dropped = droppedFiles(event.dataTransfer);
        void attempt(async () => upload(await dropped));
      }}
    >
      <div class="row">
        <nav class="crumbs mono" aria-label="Directory">
          {crumbsOf(path).map((crumb, index, all) => (
            <button
              key={crumb.path}
              type="button"
              class="crumb"
              aria-current={index === all.length - 1 ? 'location' : undefined}
              onClick={() => {
                directory.value = crumb.path;
              }}
            >
              {shownName(crumb.name)}
            </button>
          ))}
        </nav>
        <div class="row push">
          {canChange() && (
            <label class="button small">
              Upload
              <input
                type="file"
                multiple
                class="unseen"
                onChange={({ currentTarget }) => {
                  const chosen = [...(currentTarget.files ?? [])];
                  void upload(chosen.map((file) => ({ path: file.name, file })));
                  // The same file may be chosen again.
                  currentTarget.value = '';
                }}
              />
            </label>
          )}
          <button type="button" class="button small" onClick={reload}>
            Read again
          </button>
        </div>
      </div>
      {error !== undefined && <FaultNotice error={error} retry={reload} />}
      {value !== undefined && (
        <>
          <div class="scroll-x">
            <table>
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Size</th>
                  <th class="optional">Changed</th>
                  <th class="optional">Owner</th>
                  <th>
                    <span class="unseen">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {path !== '/' && (
                  <tr>
                    <td colSpan={5}>
                      <button
                        type="button"
                        class="file-name"
                        onClick={() => {
                          directory.value = parentOf(path);
                        }}
                      >
                        ..<span class="unseen"> the directory above</span>
                      </button>
                    </td>
                  </tr>
                )}
                {sorted(value.entries).map((entry) => (
                  <Entry
                    key={entry.path}
                    entry={entry}
                    onOpen={() => open(entry)}
                    onDownload={() => void attempt(() => download(id, entry))}
                    onRemove={() => void remove(entry)}
                  />
                ))}
              </tbody>
            </table>
          </div>
          <p class="small quiet">
            {plural(value.entries.length, 'entry', 'entries')}.
            {canChange() ? ' Drop files or directories here to upload them.' : ''}
          </p>
        </>
      )}
    </section>
  );
}

interface EntryProps {
  readonly entry: FileEntry;
  readonly onOpen: () => void;
  readonly onDownload: () => void;
  readonly onRemove: () => void;
}

function Entry({ entry, onOpen, onDownload, onRemove }: EntryProps) {
  const { name, type, size, modifiedAt, owner, symlinkTarget } = entry;
  const shown = shownName(name);
  return (
    <tr>
      <td>
        <button type="button" class={`file-name ${type}`} onClick={onOpen} disabled={type === 'other'}>
          {shown}
          {type === 'directory' ? '/' : ''}
        </button>
        {symlinkTarget !== null && <span class="quiet small"> → {shownName(symlinkTarget)}</span>}
      </td>
      <td class="number">{type === 'file' ? bytes(size) : ''}</td>
      <td class="optional number">{modifiedAt === null ? '–' : clockTime(modifiedAt)}</td>
      <td class="optional">{owner}</td>
      <td class="act">
        {type === 'file' && (
          <button type="button" class="button small plain" onClick={onDownload}>
            Download<span class="unseen"> {shown}</span>
          </button>
        )}
        {canChange() && (
          <button type="button" class="button small plain danger" onClick={onRemove}>
            Remove<span class="unseen"> {shown}</span>
          </button>
        )}
      </td>
    </tr>
  );
}

async function download(id: SandboxId, { name, path }: FileEntry): Promise<void> {
  saveAs(name, await filesOf(id).read(path, { wake: false }));
}

/** Directories first. */
function sorted(entries: readonly FileEntry[]): FileEntry[] {
  return entries.toSorted((a, b) => {
    const order = Number(b.type === 'directory') - Number(a.type === 'directory');
    return order === 0 ? a.name.localeCompare(b.name) : order;
  });
}
