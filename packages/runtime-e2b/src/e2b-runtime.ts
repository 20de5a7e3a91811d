/**
 * Sandboxes at any E2B-compatible provider. The provider keeps the checkpoints: a sandbox of ours that is paused is
 * a sandbox of the provider that sleeps, sealed by the provider's own word that it does, and used up by the next
 * start; one that was snapshotted has a snapshot there, which is not. What the provider can do is found out by trying
 * (`probe.ts`), and what it says it did by looking.
 */
import type {
  Address,
  AgentAddress,
  Captured,
  Clock,
  FreezePurpose,
  Instance,
  MemoryVerdict,
  Observation,
  Report,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
  TemplateSpec,
} from '@torpor/engine';
import { AGENT_PORT, connectAgent } from '@torpor/envd';
import { KeyedMutex } from '@torpor/host';
import {
  type Capabilities,
  type CheckpointId,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import { declaredPort, refuseRestrictions } from '@torpor/runtime-shared';
import { corrupt, type Kept, keptAs, locationOf, missing, needsOf } from './checkpoint-needs.ts';
import { Doors } from './doors.ts';
import { Instances, notAlive } from './instances.ts';
import { listeningPorts } from './listening-ports.ts';
import type { Provider, Reached } from './provider.ts';
import type { InstanceRecord, Records } from './records.ts';
import { endLingering, startWhatIsMissing } from './services.ts';
import { Snapshots } from './snapshots.ts';

export interface E2bRuntimeParts {
  readonly provider: Provider;
  readonly records: Records;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  readonly report: Report;
  readonly capabilities: Capabilities;
  /** The provider's template that stands for `base`. */
  readonly template: string;
  /** Marks what is ours at the provider; of the data directory. */
  readonly home: string;
  readonly socketDir: string;
}

const LOOK_EVERY_MS = 250;
/** A provider may need a moment until it shows what it has done. */
const LOOKS = 20;
/** For what must not be broken off half done; the provider's own bound on a request is enough. */
const UNSTOPPED = new AbortController().signal;

export class E2bRuntime implements Runtime {
  readonly name = 'e2b';
  readonly memoryEntries = [];
  private readonly parts: E2bRuntimeParts;
  private readonly doors: Doors;
  private readonly snapshots: Snapshots;
  private readonly instances: Instances;
  /** What comes to be at the provider is ended only once it has, or it would come after its end. */
  private readonly comings = new KeyedMutex<SandboxId>();

  constructor(parts: E2bRuntimeParts) {
    this.parts = parts;
    const { socketDir, provider, records, home } = parts;
    this.doors = new Doors({ socketDir, sandboxUrl: provider.options.sandboxUrl });
    this.snapshots = new Snapshots(provider, records);
    this.instances = new Instances(provider, records, home);
  }

  capabilities(): Capabilities {
    return this.parts.capabilities;
  }

  checkNetwork(network: Network): void {
    refuseRestrictions(this.name, network);
  }

  async setNetwork(_: Instance, network: Network): Promise<void> {
    refuseRestrictions(this.name, network);
  }

  /** The provider makes its templates itself. */
  async prepareTemplate({ root }: TemplateSpec): Promise<Captured> {
    if (root.kind !== 'builtin') {
      throw new TorporError('capability_unsupported', 'Templates of this runtime are made at its provider.');
    }
    return captured({ is: 'template', template: this.parts.template }, 'files');
  }

  async start(
    instance: Instance,
    from: SealedCheckpoint,
    use: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    signal.throwIfAborted();
    const kept = keptAs(from);
    if (kept === undefined) throw corrupt(from.id);
    await this.comings.run(
      instance.sandboxId,
      () =>
        kept.is === 'sleeper'
          ? this.wake(instance, from.id, kept.providerId, use, signal)
          : this.make(instance, from.id, kept, spec),
      signal,
    );
    const restored = use === 'memory' && kept.is !== 'template';
    if (!restored && kept.is !== 'template') {
      await endLingering(await this.agentOf(instance, signal), signal);
    }
    await this.startServices(instance, spec, signal);
    return restored ? { kind: 'memory', lost: [] } : { kind: 'files', lost: ['processes'] };
  }

  /** A new sandbox of the provider. */
  private async make(
    instance: Instance,
    checkpointId: CheckpointId,
    kept: Exclude<Kept, { is: 'sleeper' }>,
    spec: StartSpec,
  ): Promise<void> {
    const { provider, records } = this.parts;
    const origin = kept.is === 'template' ? kept.template : kept.snapshotId;
    const reached = await provider
      .create(origin, this.instances.marksOf(instance), { ...spec.env }, UNSTOPPED)
      .catch(async (thrown: unknown) => {
        // The package does not tell by a type that there is no such snapshot.
        const there = await this.isThere(checkpointId, kept, UNSTOPPED).catch(() => true);
        throw there ? thrown : missing(checkpointId);
      });
    await records.write(instance, {
      providerId: reached.providerId,
      reached,
      state: 'running',
      captured: null,
    });
  }

  private async wake(
    instance: Instance,
    from: CheckpointId,
    providerId: string,
    use: 'memory' | 'files',
    signal: AbortSignal,
  ): Promise<void> {
    const { records } = this.parts;
    // Before the provider is asked: from then on it may be the only copy, and must be found again.
    await records.write(instance, { providerId, reached: null, state: 'starting', from, captured: null });
    const reached = await this.connect(providerId, from, use, signal);
    signal.throwIfAborted();
    await this.instances.awake(instance, { providerId, reached, state: 'starting', from, captured: null });
  }

  /** A connect that failed may have woken it all the same: then only the answer was lost. */
  private async connect(
    providerId: string,
    from: CheckpointId,
    use: 'memory' | 'files',
    signal: AbortSignal,
  ): Promise<Reached> {
    const { provider } = this.parts;
    try {
      return await provider.connect(providerId, use === 'memory' ? 'restore' : 'reboot', signal);
    } catch (thrown) {
      signal.throwIfAborted();
      const state = await provider.stateOf(providerId, signal).catch(() => {
        throw thrown;
      });
      if (state === 'gone') throw missing(from);
      if (state === 'paused') throw thrown;
      return provider.connect(providerId, 'restore', signal);
    }
  }

  async observe(instance: Instance, signal: AbortSignal): Promise<Observation> {
    try {
      const record = await this.instances.find(instance, signal);
      const state =
        record === undefined ? 'gone' : await this.parts.provider.stateOf(record.providerId, signal);
      if (record === undefined || state === 'gone') {
        return { is: 'gone', files: false, why: 'the provider has no such sandbox' };
      }
      if (record.state === 'held') return { is: 'frozen' };
      if (state === 'running') {
        if (record.from !== undefined) await this.instances.awake(instance, record);
        return { is: 'running' };
      }
      if (record.state === 'frozen') return { is: 'frozen' };
      if (record.state === 'starting') {
        // Should the provider wake it later, it is still what the checkpoint names.
        return { is: 'gone', files: false, why: 'the provider has not woken it', untouched: true };
      }
      return { is: 'gone', files: true, why: 'the provider has put it to sleep' };
    } catch (thrown) {
      return { is: 'unknown', why: TorporError.from(thrown).message };
    }
  }

  async agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress> {
    const { socketPath, token } = await this.doors.to(
      instance,
      await this.reachedOf(instance, signal),
      AGENT_PORT,
    );
    return { address: { socketPath }, token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    if ((await this.instances.stanceOf(instance, signal)).is !== 'running') return null;
    const agent = await this.agentOf(instance, signal);
    const open = await listeningPorts(agent, signal).finally(() => agent.close());
    // Where sandboxes share a network, what others listen on is not this one's.
    const own = this.parts.capabilities.isolated ? open.all : open.own;
    if (!own.has(port)) return null;
    const { socketPath } = await this.doors.to(instance, await this.reachedOf(instance, signal), port);
    return { socketPath };
  }

  /** The provider sees to that when it pauses. */
  async presync(): Promise<void> {}

  /**
   * For a pause it is put to sleep, which is believed when the provider shows it and not because it has answered.
   * For a snapshot the provider stops it itself, for as long as that takes.
   */
  async freeze(instance: Instance, signal: AbortSignal, purpose: FreezePurpose = 'pause'): Promise<void> {
    this.requirePause();
    const { provider, records } = this.parts;
    const record = await this.instances.alive(instance, signal);
    const wanted = purpose === 'pause' ? 'frozen' : 'held';
    const state = await provider.stateOf(record.providerId, signal);
    if (state === 'paused' && record.state === wanted) return;
    if (state !== 'running') throw notAlive(instance);
    await records.write(instance, { ...record, state: wanted });
    if (wanted === 'held') return;
    await provider.pause(record.providerId, signal);
    await this.seenAsleep(instance, record.providerId, signal);
  }

  private async seenAsleep(instance: Instance, providerId: string, signal: AbortSignal): Promise<void> {
    const { provider, clock } = this.parts;
    for (let looks = 0; looks < LOOKS; looks++) {
      const state = await provider.stateOf(providerId, signal);
      if (state === 'gone') throw notAlive(instance);
      if (state === 'paused') return;
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
    throw new TorporError('unreachable', 'The provider said that it has paused the sandbox, and it runs on.');
  }

  async capture(
    instance: Instance,
    mode: 'memory' | 'files',
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    this.requirePause(mode);
    signal.throwIfAborted();
    const record = await this.instances.alive(instance, signal);
    if (record.state === 'frozen') return this.seal(instance, record, mode, staging, signal);
    if (record.state !== 'held') throw new TorporError('conflict', 'Only what is frozen can be captured.');
    const snapshotId = await this.snapshots.take(staging.checkpointId, record.providerId, signal);
    return captured({ is: 'snapshot', snapshotId }, mode);
  }

  async thaw(instance: Instance, _: CheckpointId | null, signal: AbortSignal): Promise<void> {
    const { provider, records } = this.parts;
    const record = await this.instances.alive(instance, signal);
    const state = await provider.stateOf(record.providerId, signal);
    if (state === 'gone') throw notAlive(instance);
    if (record.state !== 'frozen' && record.state !== 'held') {
      if (state === 'paused') throw notAlive(instance);
      return;
    }
    const reached =
      state === 'running' && record.reached !== null
        ? record.reached
        : await provider.connect(record.providerId, 'restore', signal).catch((thrown: unknown) => {
            throw thrown instanceof TorporError && thrown.code === 'expired' ? notAlive(instance) : thrown;
          });
    if (record.captured !== null) await records.letGo(record.captured);
    await records.write(instance, { ...record, reached, state: 'running', captured: null });
  }

  /** One that the provider has put to sleep by itself: it is its own checkpoint. */
  async recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    const record = await this.instances.find(instance, signal);
    if (record === undefined) throw new TorporError('checkpoint_missing', 'Nothing of it is left.');
    return this.seal(instance, record, 'files', staging, signal);
  }

  private async seal(
    instance: Instance,
    record: InstanceRecord,
    mode: 'memory' | 'files',
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    const { provider, records } = this.parts;
    const { providerId } = record;
    const state = await provider.stateOf(providerId, signal);
    if (state === 'gone') throw new TorporError('checkpoint_missing', 'The provider has no such sandbox.');
    if (state !== 'paused') throw new TorporError('unreachable', 'The provider shows it running.');
    await records.keep(staging.checkpointId, { providerId });
    // One that was captured before, and not sealed, was a try.
    if (record.captured !== null && record.captured !== staging.checkpointId) {
      await records.letGo(record.captured);
    }
    await records.write(instance, { ...record, state: 'frozen', captured: staging.checkpointId });
    return captured({ is: 'sleeper', providerId }, mode);
  }

  destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    return this.comings.run(upTo.sandboxId, () => this.end(upTo, signal), signal);
  }

  /** What has become a checkpoint is the checkpoint's: it is ended when that is discarded. */
  private async end(upTo: Instance, signal: AbortSignal): Promise<void> {
    const { records, provider } = this.parts;
    for await (const { generation, providerId } of this.instances.all(upTo.sandboxId, signal)) {
      if (generation > upTo.generation) continue;
      const instance = { sandboxId: upTo.sandboxId, generation };
      const wanted = (await records.isUsed(providerId, instance)) || (await records.isKept(providerId));
      if (!wanted) await provider.kill(providerId, signal);
      await this.doors.close(instance);
      await records.forget(instance);
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<Instance> {
    const seen = new Set<string>();
    for await (const { sandboxId, generation } of this.instances.all(null, signal)) {
      const name = `${sandboxId}/${generation}`;
      if (!seen.has(name)) yield { sandboxId, generation };
      seen.add(name);
    }
  }

  async inspect(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict> {
    const kept = keptAs(checkpoint);
    if (kept === undefined) throw corrupt(checkpoint.id);
    const there = await this.isThere(checkpoint.id, kept, signal).catch((cause: unknown) => {
      throw new TorporError('checkpoint_unreadable', 'The provider could not be asked.', {
        checkpointId: checkpoint.id,
        cause,
      });
    });
    if (!there) throw missing(checkpoint.id);
    return { usable: true };
  }

  private async isThere(id: CheckpointId, kept: Kept, signal: AbortSignal): Promise<boolean> {
    if (kept.is === 'snapshot') return this.snapshots.isThere(id, kept.snapshotId, signal);
    if (kept.is === 'sleeper') return (await this.parts.provider.stateOf(kept.providerId, signal)) !== 'gone';
    return true;
  }

  async verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    await this.inspect(checkpoint, signal);
  }

  /** Also of one whose making was broken off, which says nothing of itself. */
  async discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    const { records, provider } = this.parts;
    const kept = keptAs(checkpoint);
    const record = await records.kept(checkpoint.id);
    if (kept?.is === 'snapshot' || (record !== undefined && 'snapshotOf' in record)) {
      return this.snapshots.discard(checkpoint.id, signal);
    }
    const sleeper = kept?.is === 'sleeper' ? kept.providerId : undefined;
    const providerId = record?.providerId ?? sleeper;
    if (providerId === undefined) return;
    // One that was woken from it lives on.
    if (!(await records.isUsed(providerId))) await provider.kill(providerId, signal);
    await records.letGo(checkpoint.id);
  }

  /** Sandboxes that run must not fall asleep at the provider because nobody said that they are wanted. */
  async renewAll(signal: AbortSignal): Promise<void> {
    for await (const { record, sandboxId } of this.parts.records.all()) {
      if ((record.state !== 'running' && record.state !== 'held') || signal.aborted) continue;
      await this.parts.provider
        .renew(record.providerId, signal)
        .catch((error: unknown) =>
          this.parts.report('a lifetime could not be renewed', { sandboxId, error }),
        );
    }
  }

  close(): Promise<void> {
    return this.doors.close();
  }

  private requirePause(mode: 'memory' | 'files' = 'files'): void {
    const { pause } = this.parts.capabilities;
    if (pause === 'memory' || pause === mode) return;
    throw new TorporError('capability_unsupported', `The provider keeps no ${mode} over a pause.`);
  }

  private async reachedOf(instance: Instance, signal: AbortSignal): Promise<Reached> {
    const stance = await this.instances.stanceOf(instance, signal);
    if (stance.is === 'dead') throw notAlive(instance);
    if (stance.is === 'frozen') throw new TorporError('transitioning', 'The sandbox is being paused.');
    const { record } = stance;
    if (record.reached !== null) return record.reached;
    const reached = await this.parts.provider.connect(record.providerId, 'restore', signal);
    await this.instances.awake(instance, { ...record, reached });
    return reached;
  }

  private async agentOf(instance: Instance, signal: AbortSignal) {
    const { address, token } = await this.agent(instance, signal);
    if (!('socketPath' in address)) throw new TorporError('internal', 'A relay is a socket.');
    return connectAgent({ socketPath: address.socketPath, accessToken: token });
  }

  private async startServices(
    instance: Instance,
    { services }: StartSpec,
    signal: AbortSignal,
  ): Promise<void> {
    if (services.length === 0) return;
    const agent = await this.agentOf(instance, signal);
    const { clock, settings } = this.parts;
    const dial = (port: number) => this.dial(instance, port, signal);
    const ground = { agent, clock, settings, portFor: declaredPort, dial };
    await startWhatIsMissing(ground, services, signal).finally(() => agent.close());
  }
}

function captured(kept: Kept, mode: 'memory' | 'files'): Captured {
  return {
    parts: { files: true, memory: mode === 'memory' },
    needs: needsOf(kept),
    dependsOn: [],
    external: { location: locationOf(kept), bytes: null, replayable: kept.is !== 'sleeper' },
  };
}
