/** How far a sandbox is on its way to a visitor, in words for people. The waiting page shows it. */
import type { SandboxState, TorporError } from '@torpor/protocol';

export interface PreviewStatus {
  readonly state: SandboxState;
  readonly title: string;
  readonly message: string;
  /** The page can be loaded now, and will not be this one. */
  readonly ready: boolean;
  /** Nothing is under way any more: looking again changes nothing. */
  readonly over: boolean;
}

export interface StatusInput {
  readonly state: SandboxState;
  /** Whether the port answers; only of a sandbox that runs. */
  readonly portAnswers: boolean;
  /** Whether the gateway is waking it, or will when the door opens. */
  readonly isComing: boolean;
  readonly failure: TorporError | undefined;
}

export function describeStatus({ state, portAnswers, isComing, failure }: StatusInput): PreviewStatus {
  const waits = { state, ready: false, over: false };
  switch (state) {
    case 'running':
      return portAnswers
        ? { state, ready: true, over: false, title: 'Here it is', message: 'The app is awake.' }
        : { ...waits, title: 'Starting the app', message: 'The sandbox is awake; its server comes up.' };
    case 'creating':
      return { ...waits, title: 'Setting up', message: 'The sandbox is being made.' };
    case 'pausing':
      return { ...waits, title: 'Just a moment', message: 'It is going to sleep, and will wake for you.' };
    case 'resuming':
      return {
        ...waits,
        title: 'Waking up',
        message: 'This sandbox was asleep. It will be here in a moment.',
      };
    case 'paused':
      if (isComing) {
        return {
          ...waits,
          title: 'Waking up',
          message: 'This sandbox was asleep. It will be here in a moment.',
        };
      }
      return failure === undefined
        ? { state, ready: false, over: true, title: 'Asleep', message: 'The sandbox went back to sleep.' }
        : { state, ready: false, over: true, title: 'It did not wake', message: failure.message };
    default:
      // The page that is loaded now explains it.
      return { state, ready: true, over: false, title: 'Gone', message: `The sandbox is ${state}.` };
  }
}
