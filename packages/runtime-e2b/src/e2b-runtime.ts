/**
 * Sandboxes at any E2B-compatible provider. The provider stores the checkpoints. A paused sandbox of ours is a paused
 * sandbox of the provider, which the next start uses up. A snapshot of ours is a snapshot of the provider, which can be
 * started many times. The capabilities of the provider are found by trying them (`provider/probe.ts`).
 */
import type {
  Address,
  AgentAddress,
  Captured,
  FreezePurpose,
  Instance,
  MemoryVerdict,
  Observation,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
  TemplateSpec,
} from '@torpor/engine';
import { AGENT_PORT, type AgentClient, connectAgent } from '@torpor/envd';
import { KeyedMutex } from '@torpor/host';
import {
  type Capabilities,
  type CheckpointId,
  type CheckpointMode,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { declaredPort, refuseRestrictions } from '@torpor/runtime-shared';
import { captureInstance, capturePaused, freezeInstance, thawInstance } from './capture.ts';
import { captured, missing, parseNeeds, requireNeeds } from './checkpoint-needs.ts';
import { ensureServices, killProcesses } from './instance/ensure-services.ts';
import { listeningPorts } from './instance/listening-ports.ts';
import type { RuntimeContext } from './runtime-context.ts';
import { checkpointExists, startInstance } from './start.ts';

export class E2bRuntime implements Runtime {
  readonly name = 'e2b';
  readonly memoryEntries = [];
  readonly #ctx: RuntimeContext;
  /** A destroy waits for a start that is under way, or the provider would create the sandbox after its destruction. */
  readonly #mutex = new KeyedMutex<SandboxId>();

  constructor(ctx: RuntimeContext) {
    this.#ctx = ctx;
  }

  capabilities(): Capabilities {
    return this.#ctx.capabilities;
  }

  checkNetwork(network: Network): void {
    refuseRestrictions(this.name, network);
  }

  async setNetwork(_: Instance, network: Network): Promise<void> {
    refuseRestrictions(this.name, network);
  }

  async prepareTemplate({ root }: TemplateSpec): Promise<Captured> {
    if (root.kind !== 'builtin') {
      throw new TorporError('capability_unsupported', 'Templates of this runtime are made at its provider.');
    }
    return captured({ is: 'template', template: this.#ctx.template }, 'files');
  }

  async start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: CheckpointMode,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    signal.throwIfAborted();
    const checkpoint = requireNeeds(from);
    const start = () => startInstance(this.#ctx, instance, from, checkpoint, mode, spec, signal);
    await this.#mutex.run(instance.sandboxId, start, signal);
    const restored = mode === 'memory' && checkpoint.is !== 'template';
    if (!restored && checkpoint.is !== 'template') {
      await killProcesses(await this.#agentClient(instance, signal), signal);
    }
    await this.#ensureServices(instance, spec, signal);
    return restored ? { mode: 'memory', lost: [] } : { mode: 'files', lost: ['processes'] };
  }

  async observe(instance: Instance, signal: AbortSignal): Promise<Observation> {
    const { instances, provider } = this.#ctx;
    try {
      const record = await instances.find(instance, signal);
      const state = record === undefined ? 'gone' : await provider.stateOf(record.providerId, signal);
      if (record === undefined || state === 'gone') {
        return { is: 'gone', files: false, why: 'the provider has no such sandbox' };
      }
      if (record.state === 'held') return { is: 'frozen' };
      if (state === 'running') {
        if (record.from !== undefined) await instances.markRunning(instance, record);
        return { is: 'running' };
      }
      if (record.state === 'frozen') return { is: 'frozen' };
      if (record.state === 'starting') {
        // If the provider resumes it later, it is still the sandbox that the checkpoint names.
        return { is: 'gone', files: false, why: 'the provider has not resumed it', untouched: true };
      }
      return { is: 'gone', files: true, why: 'the provider has paused it' };
    } catch (thrown) {
      return { is: 'unknown', why: TorporError.from(thrown).message };
    }
  }

  async agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress> {
    const { socketPath, token } = await this.#relayTo(instance, AGENT_PORT, signal);
    return { address: { socketPath }, token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    if ((await this.#ctx.instances.stateOf(instance, signal)).is !== 'running') return null;
    const agent = await this.#agentClient(instance, signal);
    const listening = await listeningPorts(agent, signal).finally(() => agent.close());
    // Without isolation the sandboxes share a network, and the ports of other users belong to other sandboxes.
    const own = this.#ctx.capabilities.isolated ? listening.all : listening.own;
    if (!own.has(port)) return null;
    const { socketPath } = await this.#relayTo(instance, port, signal);
    return { socketPath };
  }

  /** The provider syncs the files when it pauses. */
  async presync(): Promise<void> {}

  async freeze(instance: Instance, signal: AbortSignal, purpose: FreezePurpose = 'pause'): Promise<void> {
    this.#requirePause();
    await freezeInstance(this.#ctx, instance, purpose, signal);
  }

  async capture(
    instance: Instance,
    mode: CheckpointMode,
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    this.#requirePause(mode);
    return captureInstance(this.#ctx, instance, mode, staging, signal);
  }

  async thaw(instance: Instance, _: CheckpointId | null, signal: AbortSignal): Promise<void> {
    await thawInstance(this.#ctx, instance, signal);
  }

  /** A sandbox that the provider has paused by itself becomes the checkpoint. */
  async recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    const record = await this.#ctx.instances.find(instance, signal);
    if (record === undefined)
      throw new TorporError('checkpoint_missing', 'The provider has nothing left of the sandbox.');
    return capturePaused(this.#ctx, instance, record, 'files', staging, signal);
  }

  destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    return this.#mutex.run(upTo.sandboxId, () => this.#destroy(upTo, signal), signal);
  }

  /** A sandbox that has become a checkpoint is not killed here, but when the checkpoint is discarded. */
  async #destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    const { records, provider, instances, relays } = this.#ctx;
    for await (const { generation, providerId } of instances.all(upTo.sandboxId, signal)) {
      if (generation > upTo.generation) continue;
      const instance = { sandboxId: upTo.sandboxId, generation };
      const isNeeded =
        (await records.isUsed(providerId, instance)) || (await records.isCheckpoint(providerId));
      if (!isNeeded) await provider.kill(providerId, signal);
      await relays.close(instance);
      await records.remove(instance);
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<Instance> {
    const seen = new Set<string>();
    for await (const { sandboxId, generation } of this.#ctx.instances.all(null, signal)) {
      const name = `${sandboxId}/${generation}`;
      if (!seen.has(name)) yield { sandboxId, generation };
      seen.add(name);
    }
  }

  async checkUsable(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict> {
    const { id } = checkpoint;
    const exists = await checkpointExists(this.#ctx, id, requireNeeds(checkpoint), signal).catch(
      (cause: unknown) => {
        throw new TorporError('checkpoint_unreadable', 'The provider does not answer.', {
          checkpointId: id,
          cause,
        });
      },
    );
    if (!exists) throw missing(id);
    return { usable: true };
  }

  async verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    await this.checkUsable(checkpoint, signal);
  }

  /** Also discards a checkpoint whose capture was interrupted and which has no needs. */
  async discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    const { records, provider, snapshots } = this.#ctx;
    const external = parseNeeds(checkpoint);
    const record = await records.findCheckpoint(checkpoint.id);
    if (external?.is === 'snapshot' || (record !== undefined && 'snapshotOf' in record)) {
      return snapshots.discard(checkpoint.id, signal);
    }
    const paused = external?.is === 'paused' ? external.providerId : undefined;
    const providerId = record?.providerId ?? paused;
    if (providerId === undefined) return;
    // An instance that was resumed from the checkpoint uses the same sandbox of the provider.
    if (!(await records.isUsed(providerId))) await provider.kill(providerId, signal);
    await records.removeCheckpoint(checkpoint.id);
  }

  /** Extends the lifetime of all running sandboxes, or the provider would pause them. */
  async renewAll(signal: AbortSignal): Promise<void> {
    const { records, provider, report } = this.#ctx;
    for await (const { record, sandboxId } of records.all()) {
      if ((record.state !== 'running' && record.state !== 'held') || signal.aborted) continue;
      await provider
        .renew(record.providerId, signal)
        .catch((error: unknown) => report('a lifetime could not be renewed', { sandboxId, error }));
    }
  }

  close(): Promise<void> {
    return this.#ctx.relays.close();
  }

  #requirePause(mode: CheckpointMode = 'files'): void {
    const { pause } = this.#ctx.capabilities;
    if (pause === 'memory' || pause === mode) return;
    throw new TorporError('capability_unsupported', `The provider keeps no ${mode} over a pause.`);
  }

  async #relayTo(instance: Instance, port: number, signal: AbortSignal) {
    const { relays, instances } = this.#ctx;
    return relays.to(instance, await instances.connectionTo(instance, signal), port);
  }

  async #agentClient(instance: Instance, signal: AbortSignal): Promise<AgentClient> {
    const { socketPath, token } = await this.#relayTo(instance, AGENT_PORT, signal);
    return connectAgent({ socketPath, accessToken: token });
  }

  async #ensureServices(instance: Instance, { services }: StartSpec, signal: AbortSignal): Promise<void> {
    if (services.length === 0) return;
    const agent = await this.#agentClient(instance, signal);
    const { clock, settings } = this.#ctx;
    const dial = (port: number) => this.dial(instance, port, signal);
    const serviceContext = { agent, clock, settings, portFor: declaredPort, dial };
    await ensureServices(serviceContext, services, signal).finally(() => agent.close());
  }
}
