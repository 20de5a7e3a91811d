/** The audit: who did what, from the ledger. Its entries outlive their sandbox. */
import { useSignal } from '@preact/signals';
import type { AuditEntry } from '@torpor/sdk';
import { useEffect } from 'preact/hooks';
import { collected } from '../live/collected.ts';
import { recentEvents } from '../live/recent-events.ts';
import { sandboxes } from '../live/sandboxes.ts';
import { eventText, eventTitle, weightOf } from '../sandbox/event-text.ts';
import { href } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { saveAs } from '../ui/download.ts';
import { ListView } from '../ui/list-view.tsx';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime, plural } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { actorText, hasWords } from './audit-text.ts';

const SHOWN = 300;
const AFTER_MS = 500;

export function AuditView() {
  const words = useSignal('');
  const audit = useLoaded(async (signal) => {
    const { items } = await torpor().eventPage({ order: 'newest', limit: SHOWN, signal });
    const first = items.at(-1)?.position;
    const [entries, keys] = await Promise.all([
      first === undefined ? [] : collected(torpor().audit({ after: first - 1, signal })),
      collected(torpor().keys.list({ signal })),
    ]);
    return { entries: entries.toReversed(), names: new Map(keys.map(({ id, name }) => [id, name])) };
  }, []);
  const { value, reload } = audit;
  const newest = recentEvents.value?.[0]?.position;
  useEffect(() => {
    const timer = setTimeout(reload, AFTER_MS);
    return () => clearTimeout(timer);
  }, [newest]);
  const shown = (value?.entries ?? []).filter((entry) =>
    hasWords(entry, actorText(entry, value?.names ?? new Map()), words.value.trim()),
  );
  return (
    <ListView
      title="Audit"
      loaded={audit}
      beside={
        <>
          <input
            type="search"
            class="filter"
            aria-label="Find in the audit"
            placeholder="Event, sandbox, key, user"
            value={words}
            onInput={({ currentTarget }) => {
              words.value = currentTarget.value;
            }}
          />
          <Export />
        </>
      }
    >
      {({ entries, names }) => (
        <div class="stack">
          <p class="quiet">
            Who did what: the last {SHOWN} changes of sandboxes and checkpoints. They are never deleted, so
            they outlive their sandbox; the export has all of them.
          </p>
          {shown.length === 0 ? (
            <p class="quiet">{entries.length === 0 ? 'Nothing has happened yet.' : 'Nothing matches.'}</p>
          ) : (
            <div class="panel">
              <Table columns={['Position', 'When', 'What', 'Sandbox', 'Who']}>
                {shown.map((entry) => (
                  <Entry key={entry.position} entry={entry} names={names} />
                ))}
              </Table>
            </div>
          )}
        </div>
      )}
    </ListView>
  );
}

interface EntryProps {
  readonly entry: AuditEntry;
  readonly names: ReadonlyMap<string, string>;
}

function Entry({ entry, names }: EntryProps) {
  const { position, at, sandboxId, by } = entry;
  return (
    <tr>
      <td class="number">{position}</td>
      <td class="number">{clockTime(at)}</td>
      <td>
        <span class={weightOf(entry) === 'bad' ? 'bad-text' : undefined}>{eventTitle(entry)}</span>
        <div class="small quiet wrap">{eventText(entry)}</div>
      </td>
      <td class="wrap">
        <a href={href('sandboxes', sandboxId, 'timeline')}>
          {sandboxes.value.get(sandboxId)?.name ?? <code>{sandboxId}</code>}
        </a>
      </td>
      <td class={by === null ? 'quiet' : undefined} title={by?.keyId}>
        {actorText(entry, names)}
      </td>
    </tr>
  );
}

/** The whole audit as a file, one entry per line. */
function Export() {
  const read = useSignal<number | undefined>(undefined);
  const run = async () => {
    read.value = 0;
    await attempt(async () => {
      const lines: string[] = [];
      for await (const entry of torpor().audit()) {
        lines.push(`${JSON.stringify(entry)}\n`);
        if (lines.length % 1_000 === 0) read.value = lines.length;
      }
      saveAs('torpor-audit.jsonl', ...lines);
    });
    read.value = undefined;
  };
  return (
    <button type="button" class="button push" disabled={read.value !== undefined} onClick={() => void run()}>
      {read.value === undefined ? 'Export as JSON lines' : `${plural(read.value, 'entry', 'entries')} read…`}
    </button>
  );
}
