/** Makes sure that a sandbox runs: waits for a transition that is under way, and wakes a sandbox that sleeps. */
import type { Clock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { SandboxDirectory, SandboxInfo } from '../sandbox-directory.ts';
import type { GatewaySettings } from '../settings.ts';
import { autoResumeOff, notDispatched, sandboxGone, unknownSandbox } from './refusals.ts';

export interface EnsureRunningParts {
  readonly sandboxes: Pick<SandboxDirectory, 'find' | 'wake'>;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** Resolves when the gate is open. */
  readonly untilOpen: () => Promise<void>;
}

/** Resolves with the running sandbox; throws why it cannot run. */
export async function ensureRunning(
  parts: EnsureRunningParts,
  id: SandboxId,
  signal: AbortSignal,
): Promise<SandboxInfo> {
  const { sandboxes, clock, settings, untilOpen } = parts;
  for (;;) {
    signal.throwIfAborted();
    await untilOpen();
    const sandbox = await sandboxes.find(id);
    if (sandbox === undefined) throw unknownSandbox(id);
    switch (sandbox.state) {
      case 'running':
        return sandbox;
      case 'paused':
        if (!sandbox.autoResume) throw autoResumeOff(sandbox);
        if (await wake(parts, sandbox, signal)) continue;
        break;
      case 'resuming':
        // Joining the resume reports its end at once. Without autoResume the sandbox is polled instead.
        if (sandbox.autoResume && (await wake(parts, sandbox, signal))) continue;
        break;
      case 'creating':
      case 'pausing':
        break;
      default:
        throw sandboxGone(sandbox);
    }
    await clock.sleep(settings.lookAgainMs, signal);
  }
}

/** False when another transition is under way: the caller looks at the sandbox again a little later. */
async function wake(
  { sandboxes }: EnsureRunningParts,
  sandbox: SandboxInfo,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await sandboxes.wake(sandbox, signal);
    return true;
  } catch (thrown) {
    const error = TorporError.from(thrown);
    if (error.code === 'transitioning') return false;
    throw notDispatched(error, sandbox.id);
  }
}
