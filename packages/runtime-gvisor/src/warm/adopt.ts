/** Makes a warm instance the next generation of its sandbox. */
import type { Instance } from '@torpor/engine';
import type { AgentClient } from '@torpor/envd';
import type { ReplacedFile } from '@torpor/host';
import type { Attachment } from '@torpor/network';
import { TorporError } from '@torpor/protocol';
import { needsOf } from '../checkpoint-needs.ts';
import { isOwnedBy, writeOwner } from '../container/container-owner.ts';
import { agentAt } from '../instance/agent-setup.ts';
import type { InstanceRecord } from '../instance/instance-files.ts';
import type { SentryConnection } from '../runsc/control-socket.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { type StartRequest, secret } from '../start.ts';
import type { WarmInstance } from './warm-instances.ts';

/** A container whose processes run, or are about to go on, and whose agent is not set up yet. */
export interface RunningContainer {
  readonly record: InstanceRecord;
  readonly attachment: Attachment;
  /** The credential that the agent accepts now. */
  readonly credential: string;
  /** The container was frozen and goes on. */
  readonly isAdopted?: true;
  /** A client of the agent that has begun to connect. */
  readonly agent?: AgentClient;
  /** How long the agent may take to answer. Absent: as long as the whole start. */
  readonly agentMs?: number;
}

interface AdoptedContainer extends RunningContainer {
  readonly recorded: ReplacedFile;
  readonly sentry: SentryConnection;
}

/** An agent that does not answer within this time is given up, so that the same start can restore the checkpoint. */
const AGENT_MS = 10_000;

/**
 * Lets the sentry run, records the adoption and sets the network policy. The guest stays frozen inside the sentry until
 * `goOn`. Reason: an instance whose guest has run differs from its checkpoint, and a server that finds only the old record
 * takes the instance for a cache of the checkpoint.
 *
 * The record is not durable yet when this resolves. A crash of the host ends the instance anyway, and `goOn` waits until the
 * record is durable, before the sandbox counts as running: after a later crash the record leads to the files that the sandbox
 * has written. After a throw the caller destroys the new instance.
 */
export async function adopt(
  { files, network, runsc, faults }: RuntimeContext,
  warm: WarmInstance,
  { instance, from, spec }: Pick<StartRequest, 'instance' | 'from' | 'spec'>,
): Promise<AdoptedContainer> {
  const { container, credential, guestAddress } = warm.record;
  const record: InstanceRecord = {
    ...warm.record,
    token: secret(),
    credential: secret(),
    network: spec.network,
    pages: needsOf(from).pages,
    capturedFor: null,
  };
  await runsc.continueSentry(container.id);
  // The sentry accepts connections for its frozen guest.
  const sentry = runsc.connectSentry(container.id);
  const agent = agentAt(guestAddress, record.token);
  agent.preconnect();
  try {
    await files.make(instance);
    const recorded = await files.replace(instance, record);
    writeOwner(container, instance);
    await faults.pass('runtime.adopted');
    const attachment = await network.reopen(container.id, spec.network);
    if (attachment === undefined) throw new TorporError('internal', 'The kept sandbox has lost its network.');
    const running = { record, attachment, credential, isAdopted: true, agent, agentMs: AGENT_MS } as const;
    return { ...running, recorded, sentry };
  } catch (thrown) {
    sentry.close();
    agent.close();
    throw thrown;
  }
}

/**
 * Lets the adopted container go on, and runs `work` at the same time. When the container cannot go on, `work` is aborted
 * and this throws the failure of the container.
 */
export async function goOn<T>(
  { runsc, faults }: RuntimeContext,
  { record: { container }, recorded, sentry }: AdoptedContainer,
  work: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const failed = new AbortController();
  const continuing = runsc
    .continueFrozen(container.id, signal, sentry)
    .then(() => faults.pass('runtime.continued'));
  continuing.catch((thrown: unknown) => failed.abort(thrown));
  const working = work(AbortSignal.any([signal, failed.signal]));
  await Promise.allSettled([continuing, working]);
  await continuing;
  await recorded.durable;
  return working;
}

/**
 * Whether a later generation has adopted the container of this instance. When the record of that generation cannot be read,
 * the file beside the container says so.
 */
export async function isAdopted(
  { files }: RuntimeContext,
  { sandboxId, generation }: Instance,
  { container }: InstanceRecord,
): Promise<boolean> {
  const later = (await files.generations(sandboxId)).filter((other) => other > generation);
  return later.some((other) => {
    const owner = { sandboxId, generation: other };
    const record = files.read(owner);
    return record === undefined ? isOwnedBy(container, owner) : record.container.id === container.id;
  });
}
