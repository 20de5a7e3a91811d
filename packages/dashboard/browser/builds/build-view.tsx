/** One build: its stages as they pass, its log, its preview, and what can be done with it. */
import { useSignal } from '@preact/signals';
import {
  type BuildLogLine,
  type BuildState,
  type BuildStatus,
  isTransportFault,
  type JobId,
} from '@torpor/sdk';
import { useEffect } from 'preact/hooks';
import { sandboxes } from '../live/sandboxes.ts';
import { plainText } from '../sandbox/plain-text.ts';
import { FRAME_RIGHTS } from '../sandbox/preview-tab.tsx';
import { href } from '../shell/router.ts';
import { canChange, torpor } from '../shell/session.ts';
import { now } from '../ui/clock.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime, duration } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { BuildActions } from './build-actions.tsx';
import { BuildFiles } from './build-files.tsx';
import { BuildBadge, isUnderWay } from './builds-view.tsx';
import { type PreviewState, previewStateOf, WITHOUT_PREVIEW } from './preview-state.ts';

const STAGES: readonly BuildState[] = ['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'];
const LINES_KEPT = 2_000;
const RETRY_MS = 1_000;

export function BuildView({ id }: { readonly id: JobId }) {
  const { value: build, error, reload } = useLoaded((signal) => torpor().builds.status(id, { signal }), [id]);
  const attempts = useSignal(0);
  const isBusy = build !== undefined && isUnderWay(build);
  useEffect(() => {
    if (!isBusy) return undefined;
    const over = new AbortController();
    const follow = async () => {
      for await (const _ of torpor().builds.events(id, { signal: over.signal })) reload();
    };
    let retry: ReturnType<typeof setTimeout> | undefined;
    // When the server goes away, the page asks again until it answers.
    follow().catch(() => {
      if (!over.signal.aborted) retry = setTimeout(() => attempts.value++, RETRY_MS);
    });
    return () => {
      clearTimeout(retry);
      over.abort();
    };
  }, [id, isBusy, attempts.value]);
  // The preview falls asleep and wakes by itself; its sandbox tells when.
  const sandboxState = build?.sandbox_id == null ? undefined : sandboxes.value.get(build.sandbox_id)?.state;
  useEffect(() => {
    if (sandboxState !== undefined || attempts.value > 0) reload();
  }, [sandboxState, attempts.value]);
  if (error !== undefined && build === undefined) return <FaultNotice error={error} retry={reload} />;
  if (build === undefined) return null;
  const preview = previewStateOf(build, sandboxState);
  return (
    <>
      <div class="page-head">
        <div>
          <h1>{build.goal.slice(0, 160)}</h1>
          <code class="quiet">{id}</code>
        </div>
        <BuildBadge build={build} />
        {canChange() && <BuildActions build={build} preview={preview} reload={reload} />}
      </div>
      <ol class="stages" aria-label="Stages">
        {STAGES.map((stage) => (
          <li
            key={stage}
            class={stageClass(stage, build.status)}
            aria-current={stage === build.status ? 'step' : undefined}
          >
            {stage}
          </li>
        ))}
      </ol>
      {build.error_message !== null && <p class="notice bad wrap">{build.error_message}</p>}
      <div class="columns build">
        <section class="panel">
          <h2>Result</h2>
          <dl class="facts">
            <dt>Project</dt>
            <dd>
              {build.project_id}, version {build.build_version ?? '–'}
            </dd>
            <dt>Runner</dt>
            <dd>{build.runner}</dd>
            <dt>Now</dt>
            <dd>{build.stage_label}</dd>
            <dt>Started</dt>
            <dd>{clockTime(Date.parse(build.created_at))}</dd>
            <dt>{isBusy ? 'Running for' : 'Took'}</dt>
            <dd>
              {isBusy
                ? duration(now.value - Date.parse(build.created_at))
                : duration(Date.parse(build.updated_at) - Date.parse(build.created_at))}
            </dd>
            <dt>Preview</dt>
            <dd>
              {build.preview_url === null || build.expired ? (
                'none'
              ) : (
                <a href={build.preview_url} target="_blank" rel="noreferrer noopener">
                  {preview === 'running' ? 'open' : 'wake and open'}
                </a>
              )}
            </dd>
            <dt>Sandbox</dt>
            <dd>
              {build.sandbox_id === null ? (
                'none'
              ) : (
                <>
                  <a href={href('sandboxes', build.sandbox_id)}>{build.sandbox_id}</a>{' '}
                  {preview ?? build.sandbox_state}
                </>
              )}
            </dd>
          </dl>
        </section>
        <Versions build={build} />
        {preview !== null && preview !== 'expired' && (
          <Preview build={build} preview={preview} reload={reload} />
        )}
        {!isBusy && <BuildFiles build={build} />}
        <BuildLog id={id} isBusy={isBusy} />
      </div>
    </>
  );
}

function stageClass(stage: BuildState, now: BuildState): string {
  const at = STAGES.indexOf(now);
  const own = STAGES.indexOf(stage);
  if (at < 0) return '';
  return own < at || now === 'ready' ? 'done' : own === at ? 'present moving' : '';
}

/** The other builds of the project, newest first. */
function Versions({ build }: { readonly build: BuildStatus }) {
  const { value } = useLoaded(
    (signal) => torpor().builds.page({ limit: 100, signal }),
    [build.job_id, build.status],
  );
  const versions = (value?.items ?? []).filter(({ project_id }) => project_id === build.project_id);
  return (
    <section class="panel">
      <h2>Versions of {build.project_id}</h2>
      {value !== undefined && versions.length < 2 ? (
        <p class="quiet">This is the only one. A rebuild makes the next.</p>
      ) : (
        <ul class="plain">
          {versions.map((one) => (
            <li key={one.job_id} class="row">
              {one.job_id === build.job_id ? (
                <strong>{one.build_version ?? one.job_id}</strong>
              ) : (
                <a href={href('builds', one.job_id)}>{one.build_version ?? one.job_id}</a>
              )}
              <BuildBadge build={one} />
              <span class="quiet small number push">{clockTime(Date.parse(one.created_at))}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

interface PreviewProps {
  readonly build: BuildStatus;
  readonly preview: Exclude<PreviewState, 'expired'>;
  readonly reload: () => void;
}

/**
 * The app in a frame of another origin. It is there only while the sandbox runs: a frame would wake it, and one that stays
 * during a pause would wake it again.
 */
function Preview({ build: { preview_url: url, job_id: id }, preview, reload }: PreviewProps) {
  const resume = async () => {
    await attempt(() => torpor().builds.resume(id), 'The preview is awake.');
    reload();
  };
  return (
    <section class="panel build-preview">
      <h2>Preview</h2>
      {preview === 'running' ? (
        url !== null && (
          <iframe
            title="Preview of the build"
            src={url}
            sandbox={FRAME_RIGHTS}
            referrerpolicy="no-referrer"
            allow=""
          />
        )
      ) : (
        <div class="row">
          <span class="quiet">{WITHOUT_PREVIEW[preview]}</span>
          {canChange() && preview === 'paused' && (
            <button type="button" class="button small" onClick={() => void resume()}>
              Wake and show it here
            </button>
          )}
        </div>
      )}
    </section>
  );
}

function BuildLog({ id, isBusy }: { readonly id: JobId; readonly isBusy: boolean }) {
  const lines = useSignal<readonly BuildLogLine[]>([]);
  const fault = useSignal<unknown>(undefined);
  const attempts = useSignal(0);
  useEffect(() => {
    const over = new AbortController();
    const { signal } = over;
    const read = async () => {
      const page = await torpor().builds.logs(id, { limit: 500, signal });
      lines.value = page.lines;
      if (!isBusy) return;
      const afterId = page.lines.at(-1)?.id ?? 0;
      for await (const line of torpor().builds.followLogs(id, { afterId, signal })) {
        lines.value = [...lines.value.slice(-LINES_KEPT), line];
      }
    };
    let retry: ReturnType<typeof setTimeout> | undefined;
    read().then(
      () => {
        fault.value = undefined;
      },
      (error: unknown) => {
        if (signal.aborted) return;
        // The banner tells that the server is away.
        fault.value = isTransportFault(error) ? undefined : error;
        retry = setTimeout(() => attempts.value++, RETRY_MS);
      },
    );
    return () => {
      clearTimeout(retry);
      over.abort();
    };
  }, [id, isBusy, attempts.value]);
  return (
    <section class="panel wide">
      <h2>Log</h2>
      {fault.value !== undefined && <FaultNotice error={fault.value} />}
      {lines.value.length === 0 && fault.value === undefined && (
        <p class="quiet">Nothing has been logged yet.</p>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll it */}
      <pre class="build-log" tabIndex={0}>
        {lines.value.map(({ id: line, phase, text }) => (
          <div key={line}>
            <span class="quiet">{phase.padEnd(9)}</span>
            {plainText(text)}
          </div>
        ))}
      </pre>
    </section>
  );
}
