/** Whether the preview of a build runs, as one answer for the whole view. */
import type { BuildStatus, SandboxState } from '@torpor/sdk';

export type PreviewState = 'running' | 'pausing' | 'paused' | 'resuming' | 'expired' | 'unknown';

/** `live`: the state of its sandbox in the ledger, which is faster than the status of the build. Null: there is no preview. */
export function previewStateOf(
  { sandbox_state: known, expired, preview_url }: BuildStatus,
  live: SandboxState | undefined,
): PreviewState | null {
  if (known === null || preview_url === null) return null;
  if (expired) return 'expired';
  switch (live) {
    case 'running':
    case 'pausing':
    case 'paused':
    case 'resuming':
      return live;
    default:
      return known;
  }
}

/** What stands in place of the preview while it is not shown. */
export const WITHOUT_PREVIEW: Readonly<Record<Exclude<PreviewState, 'running' | 'expired'>, string>> = {
  pausing: 'The preview is falling asleep.',
  paused: 'The preview sleeps. Looking at this page does not wake it.',
  resuming: 'The preview is waking.',
  unknown: 'It could not be found out whether the preview runs.',
};
