/** Answers the question of a waiting page: how far is it? Asking never wakes anybody, and never counts as use. */
import type { Clock } from '@torpor/engine';
import { unknownSandbox } from './gate/refusals.ts';
import type { SandboxGate } from './gate/sandbox-gate.ts';
import { describeStatus, type PreviewStatus } from './response/preview-status.ts';
import type { PreviewRoute } from './route/route.ts';
import type { Sandboxes, SandboxFacts } from './sandboxes.ts';
import type { GatewaySettings } from './settings.ts';
import { connect } from './upstream/connect.ts';

/** On every preview host, in the corner that is set aside for such things. */
export const STATUS_PATH = '/.well-known/torpor/status';

export interface StatusParts {
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
}

/** `door`: undefined when nobody is on the way there. */
export async function readPreviewStatus(
  parts: StatusParts,
  door: SandboxGate | undefined,
  { sandboxId, port }: PreviewRoute,
): Promise<PreviewStatus> {
  const sandbox = await parts.sandboxes.find(sandboxId);
  if (sandbox === undefined) throw unknownSandbox(sandboxId);
  return describeStatus({
    state: sandbox.state,
    portAnswers:
      sandbox.state === 'running' && door?.isClosed !== true && (await answers(parts, sandbox, port)),
    isComing: door !== undefined && (door.isWaking || door.isClosed),
    failure: door?.lastFailure,
  });
}

/** Also a port that stays closed is an answer in the end: the page that is loaded then says so. */
async function answers(parts: StatusParts, sandbox: SandboxFacts, port: number): Promise<boolean> {
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
