/** One file: its text, which can be changed, or that it is no text. */
import { useSignal } from '@preact/signals';
import type { FileEntry, SandboxId } from '@torpor/sdk';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { saveAs } from '../ui/download.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { attempt } from '../ui/toasts.tsx';
import { bytes } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { shownName, textOf } from './file-paths.ts';

/** Larger files are downloaded instead. */
const MAX_SHOWN_BYTES = 1_000_000;

interface FileEditorProps {
  readonly id: SandboxId;
  readonly file: FileEntry;
  readonly onClose: () => void;
}

export function FileEditor({ id, file, onClose }: FileEditorProps) {
  const { path, name, size } = file;
  const files = torpor().sandboxes.files(id);
  const changed = useSignal<string | undefined>(undefined);
  const { value, error, reload } = useLoaded(
    async (signal) =>
      size > MAX_SHOWN_BYTES ? undefined : { read: await files.read(path, { wake: false, signal }) },
    [id, path],
  );
  const text = value === undefined ? undefined : textOf(value.read);
  const close = async () => {
    const question = 'What was changed since the last save is lost.';
    if (changed.value === undefined || (await confirm('Leave without saving?', question, 'Leave'))) onClose();
  };
  const save = async () => {
    const saved = await attempt(() => files.write(path, changed.value ?? ''), `${shownName(name)} is saved.`);
    if (saved !== undefined) {
      changed.value = undefined;
      reload();
    }
  };
  return (
    <section class="panel editor" aria-label={`File ${shownName(name)}`}>
      <div class="row">
        <button type="button" class="button small" onClick={() => void close()}>
          Back
        </button>
        <code class="wrap">{shownName(path)}</code>
        <span class="quiet number">{bytes(value?.read.length ?? size)}</span>
        <div class="row push">
          {changed.value !== undefined && <span class="tag warn">changed</span>}
          <button
            type="button"
            class="button small"
            onClick={() =>
              void attempt(async () => saveAs(name, value?.read ?? (await files.read(path, { wake: false }))))
            }
          >
            Download
          </button>
          <button
            type="button"
            class="button small main"
            disabled={changed.value === undefined}
            onClick={() => void save()}
          >
            Save
          </button>
        </div>
      </div>
      {error !== undefined && <FaultNotice error={error} retry={reload} />}
      {size > MAX_SHOWN_BYTES && <p class="quiet">The file is too large to show. Download it instead.</p>}
      {value !== undefined && text === undefined && <p class="quiet">The file is not text.</p>}
      {text !== undefined && (
        <textarea
          aria-label="Contents"
          spellcheck={false}
          readOnly={!canChange()}
          value={changed.value ?? text}
          onInput={({ currentTarget }) => {
            changed.value = currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            if (changed.value !== undefined) void save();
          }}
        />
      )}
    </section>
  );
}
