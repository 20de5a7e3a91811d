/** Reads the status that the waiting page polls. Reading it never wakes the sandbox and never counts as use. */
import type { Clock } from '@torpor/engine';
import { unknownSandbox } from './gate/refusals.ts';
import type { SandboxGate } from './gate/sandbox-gate.ts';
import { describeStatus, type PreviewStatus } from './response/preview-status.ts';
import type { PreviewRoute } from './route/route.ts';
import type { SandboxDirectory, SandboxInfo } from './sandbox-directory.ts';
import type { GatewaySettings } from './settings.ts';
import { connect } from './upstream/connect.ts';

/** Reserved on every preview host, below `/.well-known/`. */
export const STATUS_PATH = '/.well-known/torpor/status';

export interface StatusParts {
  readonly sandboxes: SandboxDirectory;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
}

/** `gate`: undefined when the sandbox has no traffic. */
export async function readPreviewStatus(
  parts: StatusParts,
  gate: SandboxGate | undefined,
  { sandboxId, port }: PreviewRoute,
): Promise<PreviewStatus> {
  const sandbox = await parts.sandboxes.find(sandboxId);
  if (sandbox === undefined) throw unknownSandbox(sandboxId);
  return describeStatus({
    state: sandbox.state,
    portAnswers:
      sandbox.state === 'running' && gate?.isClosed !== true && (await portAnswers(parts, sandbox, port)),
    isComing: gate !== undefined && (gate.isWaking || gate.isClosed),
    failure: gate?.lastFailure,
  });
}

/** A port that stays closed counts as answering in the end, so that the page reloads and shows the error. */
async function portAnswers(parts: StatusParts, sandbox: SandboxInfo, port: number): Promise<boolean> {
  const { sandboxes, clock, settings } = parts;
  const age = sandbox.startedAt === null ? 0 : clock.now() - sandbox.startedAt;
  if (age > settings.startingMs) return true;
  try {
    const address = await sandboxes.dial(sandbox, port);
    if (address === null)
      return !sandbox.services.some((service) => service.port === port) && age > settings.portGraceMs;
    (await connect(address, clock, settings.connectMs)).destroy();
    return true;
  } catch {
    return false;
  }
}
