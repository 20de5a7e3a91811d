/** The progress of a sandbox towards serving a request, in words for people. The waiting page shows it. */
import type { SandboxState, TorporError } from '@torpor/protocol';

export interface PreviewStatus {
  readonly state: SandboxState;
  readonly title: string;
  readonly message: string;
  /** A reload now shows another page than the waiting page. */
  readonly ready: boolean;
  /** Nothing is under way any more: the page stops polling. */
  readonly over: boolean;
}

export interface StatusInput {
  readonly state: SandboxState;
  /** Whether the port answers; false when the sandbox does not run. */
  readonly portAnswers: boolean;
  /** Whether the gateway wakes the sandbox now, or will when the gate opens. */
  readonly isComing: boolean;
  readonly failure: TorporError | undefined;
}

export function describeStatus({ state, portAnswers, isComing, failure }: StatusInput): PreviewStatus {
  const waits = { state, ready: false, over: false };
  switch (state) {
    case 'running':
      return portAnswers
        ? { state, ready: true, over: false, title: 'Ready', message: 'The app is awake.' }
        : { ...waits, title: 'Starting the app', message: 'The sandbox is awake; its server is starting.' };
    case 'creating':
      return { ...waits, title: 'Setting up', message: 'The sandbox is being created.' };
    case 'pausing':
      return {
        ...waits,
        title: 'Just a moment',
        message: 'The sandbox is going to sleep, and will then wake for you.',
      };
    case 'resuming':
      return {
        ...waits,
        title: 'Waking up',
        message: 'This sandbox was asleep. It will be ready in a moment.',
      };
    case 'paused':
      if (isComing) {
        return {
          ...waits,
          title: 'Waking up',
          message: 'This sandbox was asleep. It will be ready in a moment.',
        };
      }
      return failure === undefined
        ? { state, ready: false, over: true, title: 'Asleep', message: 'The sandbox went back to sleep.' }
        : { state, ready: false, over: true, title: 'It did not wake', message: failure.message };
    default:
      // The page that is loaded next explains the state.
      return { state, ready: true, over: false, title: 'Gone', message: `The sandbox is ${state}.` };
  }
}
