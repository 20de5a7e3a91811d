/** Builds: start one from a goal, and see what became of each. */
import { useSignal } from '@preact/signals';
import type { BuildStatus, JobId } from '@torpor/sdk';
import { href } from '../shell/router.ts';
import type { ViewProps } from '../shell/sections.tsx';
import { canChange, torpor } from '../shell/session.ts';
import { ListView } from '../ui/list-view.tsx';
import { Table } from '../ui/table.tsx';
import { clockTime } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { BuildView } from './build-view.tsx';
import { StartDialog } from './start-dialog.tsx';

const EVERY_MS = 3_000;

export function BuildsView({ parts: [id] }: ViewProps) {
  return id === undefined ? <BuildList /> : <BuildView key={id} id={id as JobId} />;
}

export function BuildBadge({ build: { status, expired } }: { readonly build: BuildStatus }) {
  const kind =
    status === 'failed' ? 'bad' : status === 'ready' ? (expired ? '' : 'running') : 'changing moving';
  return (
    <span class="state">
      <span class={`dot ${kind}`} aria-hidden="true" />
      {status}
      {expired && <span class="tag">expired</span>}
    </span>
  );
}

export function isUnderWay({ status }: BuildStatus): boolean {
  return status !== 'ready' && status !== 'failed';
}

function BuildList() {
  const isStarting = useSignal(false);
  const builds = useLoaded((signal) => torpor().builds.page({ limit: 100, signal }), []);
  // Builds have no event of the ledger; one that was started elsewhere is seen by asking.
  useEvery(EVERY_MS, builds.reload);
  return (
    <>
      <ListView
        title="Builds"
        loaded={builds}
        beside={
          canChange() && (
            <button
              type="button"
              class="button main push"
              onClick={() => {
                isStarting.value = true;
              }}
            >
              New build
            </button>
          )
        }
      >
        {({ items }) =>
          items.length === 0 ? (
            <div class="empty">
              <h2>No builds yet</h2>
              <p class="quiet">
                A build turns a goal into an app with a preview that sleeps when nobody looks at it.
              </p>
              <pre class="panel">npx torpor build "a live dashboard"</pre>
            </div>
          ) : (
            <div class="stack">
              <BuildTable title="Under way" items={items.filter(isUnderWay)} />
              <BuildTable title="History" items={items.filter((build) => !isUnderWay(build))} />
            </div>
          )
        }
      </ListView>
      {isStarting.value && (
        <StartDialog
          onClose={() => {
            isStarting.value = false;
          }}
        />
      )}
    </>
  );
}

interface BuildTableProps {
  readonly title: string;
  readonly items: readonly BuildStatus[];
}

function BuildTable({ title, items }: BuildTableProps) {
  if (items.length === 0) return null;
  return (
    <section class="panel">
      <h2>{title}</h2>
      <Table columns={['Goal', 'Status', 'Preview', 'Project', 'Version', 'Changed']}>
        {items.map((build) => (
          <tr key={build.job_id}>
            <td>
              <a href={href('builds', build.job_id)}>{build.goal.slice(0, 120)}</a>
            </td>
            <td>
              <BuildBadge build={build} />
            </td>
            <td>{build.expired ? 'expired' : (build.sandbox_state ?? '–')}</td>
            <td>{build.project_id}</td>
            <td>{build.build_version ?? '–'}</td>
            <td class="number">{clockTime(Date.parse(build.updated_at))}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
