/** Builds: start one from a goal, and see what became of each. */
import { useSignal } from '@preact/signals';
import type { BuildStatus, JobId } from '@torpor/sdk';
import { useEffect } from 'preact/hooks';
import { href } from '../shell/router.ts';
import type { ViewProps } from '../shell/sections.tsx';
import { canChange, torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { clockTime } from '../ui/units.ts';
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
  const { value, error, reload } = useLoaded((signal) => torpor().builds.page({ limit: 100, signal }), []);
  useEffect(() => {
    // Builds have no event of the ledger; one that was started elsewhere is seen by asking.
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') reload();
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <>
      <div class="page-head">
        <h1>Builds</h1>
        {canChange() && (
          <button
            type="button"
            class="button main push"
            onClick={() => {
              isStarting.value = true;
            }}
          >
            New build
          </button>
        )}
      </div>
      {error !== undefined && value === undefined && <FaultNotice error={error} retry={reload} />}
      {value?.items.length === 0 && (
        <div class="empty">
          <h2>No builds yet</h2>
          <p class="quiet">
            A build turns a goal into an app with a preview that sleeps when nobody looks at it.
          </p>
          <pre class="panel">npx torpor build "a live dashboard"</pre>
        </div>
      )}
      {value !== undefined && value.items.length > 0 && (
        <div class="stack">
          <BuildTable title="Under way" items={value.items.filter(isUnderWay)} />
          <BuildTable title="History" items={value.items.filter((build) => !isUnderWay(build))} />
        </div>
      )}
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
    <section class="panel scroll-x">
      <h2>{title}</h2>
      <table>
        <thead>
          <tr>
            <th>Goal</th>
            <th>Status</th>
            <th>Preview</th>
            <th>Project</th>
            <th>Version</th>
            <th>Changed</th>
          </tr>
        </thead>
        <tbody>
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
        </tbody>
      </table>
    </section>
  );
}
