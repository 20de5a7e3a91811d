/** What can be done with a build, by its state. */
import { useSignal } from '@preact/signals';
import type { BuildStatus, JobId } from '@torpor/sdk';
import { go } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { attempt } from '../ui/toasts.tsx';
import { isUnderWay } from './builds-view.tsx';
import type { PreviewState } from './preview-state.ts';
import { StartDialog } from './start-dialog.tsx';

interface BuildActionsProps {
  readonly build: BuildStatus;
  readonly preview: PreviewState | null;
  readonly reload: () => void;
}

export function BuildActions({ build, preview, reload }: BuildActionsProps) {
  const { job_id: id, status } = build;
  const isChanging = useSignal(false);
  const run = async (work: () => Promise<unknown>, done: string) => {
    await attempt(work, done);
    reload();
  };
  const rebuild = async () => {
    const started = await attempt(() => torpor().builds.rebuild(id));
    if (started !== undefined) go('builds', started.job_id);
  };
  const isReady = status === 'ready';
  return (
    <div class="row push">
      {isUnderWay(build) && (
        <button
          type="button"
          class="button danger"
          onClick={() => void run(() => torpor().builds.cancel(id), 'Cancelled.')}
        >
          Cancel
        </button>
      )}
      {isReady && preview === 'running' && (
        <button
          type="button"
          class="button"
          onClick={() => void run(() => pausePreview(id), 'The preview sleeps.')}
        >
          Pause the preview
        </button>
      )}
      {isReady && preview === 'paused' && (
        <button
          type="button"
          class="button"
          onClick={() => void run(() => torpor().builds.resume(id), 'The preview is awake.')}
        >
          Wake the preview
        </button>
      )}
      {isReady && !build.files_expired && (
        <button
          type="button"
          class="button"
          onClick={() => {
            isChanging.value = true;
          }}
        >
          Change it…
        </button>
      )}
      {!isUnderWay(build) && (
        <button type="button" class="button" onClick={() => void rebuild()}>
          {status === 'failed' ? 'Try again' : 'Rebuild'}
        </button>
      )}
      {isChanging.value && (
        <StartDialog
          previous={build}
          onClose={() => {
            isChanging.value = false;
          }}
        />
      )}
    </div>
  );
}

/** The answer to a pause that failed is not an error: the preview runs on, and the outcome says why. */
async function pausePreview(id: JobId): Promise<void> {
  const { snapshot } = await torpor().builds.snapshot(id);
  if (snapshot.outcome === 'failed')
    throw new Error(`The preview could not be paused and runs on. ${snapshot.error ?? ''}`.trim());
}
