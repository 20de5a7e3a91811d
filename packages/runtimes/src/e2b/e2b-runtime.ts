/**
 * Sandboxes at any E2B-compatible provider. The provider keeps the checkpoints: a sandbox of ours that is paused is
 * a sandbox of the provider that sleeps, sealed by the provider's own word that it does, and used up by the next
 * start. What the provider can do is found out by trying (`probe.ts`), and what it says it did by looking.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type {
  Address,
  AgentAddress,
  Captured,
  Clock,
  Instance,
  MemoryVerdict,
  Observation,
  Report,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
  TemplateOrder,
} from '@torpor/engine';
import { AGENT_PORT, connectAgent } from '@torpor/envd';
import {
  type Capabilities,
  type CheckpointId,
  isId,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { refuseRestrictions } from '../refuse-restrictions.ts';
import { declaredPort } from '../services.ts';
import { listeningPorts } from './listening-ports.ts';
import type { Provider } from './provider.ts';
import type { InstanceRecord, Records } from './records.ts';
import { openRelay, type Relay } from './relay.ts';
import { endLingering, startWhatIsMissing } from './services.ts';

export interface E2bRuntimeParts {
  readonly provider: Provider;
  readonly records: Records;
  readonly clock: Clock;
  readonly report: Report;
  readonly capabilities: Capabilities;
  /** The provider's template that stands for `base`. */
  readonly template: string;
  /** Marks what is ours at the provider; of the data directory. */
  readonly home: string;
  readonly socketDir: string;
}

const HOME = 'torpor-home';
const SANDBOX = 'torpor-sandbox';
const GENERATION = 'torpor-generation';
const LOOK_EVERY_MS = 250;
/** A provider may need a moment until it shows what it has done. */
const LOOKS = 20;

export class E2bRuntime implements Runtime {
  readonly name = 'e2b';
  private readonly parts: E2bRuntimeParts;
  private readonly relays = new Map<string, Promise<Relay & { readonly token: string }>>();

  constructor(parts: E2bRuntimeParts) {
    this.parts = parts;
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
  async prepareTemplate({ root }: TemplateOrder): Promise<Captured> {
    if (root.kind !== 'builtin') {
      throw new TorporError('capability_unsupported', 'Templates of this runtime are made at its provider.');
    }
    const { template } = this.parts;
    const external = { location: `e2b:template/${template}`, bytes: null, replayable: true };
    return { parts: { files: true, memory: false }, needs: { template }, standsOn: [], external };
  }

  async start(
    instance: Instance,
    from: SealedCheckpoint,
    use: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    signal.throwIfAborted();
    const { template } = from.needs;
    const sleeper = providerIdOf(from);
    if (sleeper !== null) return this.wake(instance, from, sleeper, use, spec, signal);
    if (typeof template !== 'string') {
      throw new TorporError('checkpoint_corrupt', `Checkpoint ${from.id} does not say what it is.`);
    }
    const { provider, records, home } = this.parts;
    const { sandboxId, generation } = instance;
    const metadata = { [HOME]: home, [SANDBOX]: sandboxId, [GENERATION]: String(generation) };
    const reached = await provider.create(template, metadata, { ...spec.env }, signal);
    await records.write(instance, {
      providerId: reached.providerId,
      reached,
      state: 'running',
      captured: null,
    });
    await this.startServices(instance, spec, signal);
    return { kind: 'files', lost: ['processes'] };
  }

  private async wake(
    instance: Instance,
    from: SealedCheckpoint,
    providerId: string,
    use: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    const { provider, records } = this.parts;
    // Before the provider is asked: from then on it may be the only copy, and must be found again.
    await records.write(instance, { providerId, reached: null, state: 'starting', captured: null });
    const reached = await provider
      .connect(providerId, use === 'memory' ? 'restore' : 'reboot', signal)
      .catch((thrown: unknown) => {
        throw missingIfGone(thrown, from.id);
      });
    await records.write(instance, { providerId, reached, state: 'running', captured: null });
    await records.letGo(from.id);
    if (use === 'files') await endLingering(await this.agentOf(instance, signal), signal);
    await this.startServices(instance, spec, signal);
    return use === 'memory' ? { kind: 'memory', lost: [] } : { kind: 'files', lost: ['processes'] };
  }

  async observe(instance: Instance, signal: AbortSignal): Promise<Observation> {
    const { provider, records } = this.parts;
    const record = (await records.find(instance)) ?? (await this.adopt(instance, signal));
    if (record === undefined) return { is: 'gone', files: false, why: 'the provider has no such sandbox' };
    try {
      const state = await provider.stateOf(record.providerId, signal);
      if (state === 'gone') return { is: 'gone', files: false, why: 'the provider has no such sandbox' };
      if (state === 'running') return { is: 'running' };
      if (record.state === 'frozen') return { is: 'frozen' };
      return { is: 'gone', files: true, why: 'the provider has put it to sleep' };
    } catch (thrown) {
      return { is: 'unknown', why: TorporError.from(thrown).message };
    }
  }

  async agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress> {
    const record = await this.alive(instance, signal);
    if (record.state === 'frozen') throw new TorporError('transitioning', 'The sandbox is being paused.');
    const { socketPath, token } = await this.relay(instance, record, AGENT_PORT);
    return { address: { socketPath }, token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    const record = await this.parts.records.find(instance);
    if (record?.reached == null || record.state === 'frozen') return null;
    const agent = await this.agentOf(instance, signal);
    const open = await listeningPorts(agent, signal).finally(() => agent.close());
    if (!open.has(port)) return null;
    return { socketPath: (await this.relay(instance, record, port)).socketPath };
  }

  /** The provider sees to that when it pauses. */
  async presync(): Promise<void> {}

  /** Believed when the provider shows it asleep, and not because it has answered. */
  async freeze(instance: Instance, signal: AbortSignal): Promise<void> {
    this.requirePause();
    const { provider, records, clock } = this.parts;
    const record = await this.alive(instance, signal);
    if (record.state !== 'frozen') await provider.pause(record.providerId, signal);
    for (let looks = 0; looks < LOOKS; looks++) {
      const state = await provider.stateOf(record.providerId, signal);
      if (state === 'gone') throw notAlive(instance);
      if (state === 'paused') {
        await records.write(instance, { ...record, state: 'frozen' });
        return;
      }
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
    const record = await this.alive(instance, signal);
    if (record.state !== 'frozen') throw new TorporError('conflict', 'Only what is frozen can be captured.');
    return this.seal(instance, record, mode, staging, signal);
  }

  async thaw(instance: Instance, _: CheckpointId | null, signal: AbortSignal): Promise<void> {
    const { provider, records } = this.parts;
    const record = await this.alive(instance, signal);
    if (record.state === 'running') return;
    const reached = await provider.connect(record.providerId, 'restore', signal).catch((thrown: unknown) => {
      throw thrown instanceof TorporError && thrown.code === 'expired' ? notAlive(instance) : thrown;
    });
    if (record.captured !== null) await records.letGo(record.captured);
    await records.write(instance, { ...record, reached, state: 'running', captured: null });
  }

  /** One that the provider has put to sleep by itself: it is its own checkpoint. */
  async salvage(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    const record = await this.parts.records.find(instance);
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
    await records.keep(staging.checkpointId, providerId);
    await records.write(instance, { ...record, state: 'frozen', captured: staging.checkpointId });
    return {
      parts: { files: true, memory: mode === 'memory' },
      needs: { paused: providerId },
      standsOn: [],
      external: { location: `e2b:sandbox/${providerId}`, bytes: null, replayable: false },
    };
  }

  /** What has become a checkpoint is the checkpoint's: it is ended when that is discarded. */
  async destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    const { records, provider } = this.parts;
    for await (const found of this.everything(upTo.sandboxId, signal)) {
      const { generation, providerId, captured } = found;
      if (generation > upTo.generation) continue;
      const instance = { sandboxId: upTo.sandboxId, generation };
      const wanted =
        captured || (await records.isUsed(providerId, instance)) || (await records.isKept(providerId));
      if (!wanted) await provider.kill(providerId, signal);
      await this.closeRelays(instance);
      await records.forget(instance);
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<Instance> {
    const seen = new Set<string>();
    for await (const { sandboxId, generation } of this.everything(null, signal)) {
      const name = `${sandboxId}/${generation}`;
      if (!seen.has(name)) yield { sandboxId, generation };
      seen.add(name);
    }
  }

  async inspect(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict> {
    const providerId = providerIdOf(checkpoint);
    if (providerId === null) return { usable: true };
    const state = await this.parts.provider.stateOf(providerId, signal).catch((cause: unknown) => {
      throw new TorporError('checkpoint_unreadable', 'The provider could not be asked.', {
        checkpointId: checkpoint.id,
        cause,
      });
    });
    if (state === 'gone') throw missing(checkpoint.id);
    return { usable: true };
  }

  async verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    await this.inspect(checkpoint, signal);
  }

  async discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    const { records, provider } = this.parts;
    const providerId = (await records.kept(checkpoint.id)) ?? providerIdOf(checkpoint);
    if (providerId === null || providerId === undefined) return;
    // One that was woken from it lives on.
    if (!(await records.isUsed(providerId))) await provider.kill(providerId, signal);
    await records.letGo(checkpoint.id);
  }

  /** Sandboxes that run must not fall asleep at the provider because nobody said that they are wanted. */
  async renewAll(signal: AbortSignal): Promise<void> {
    for await (const { record, sandboxId } of this.parts.records.all()) {
      if (record.state !== 'running' || signal.aborted) continue;
      await this.parts.provider
        .renew(record.providerId, signal)
        .catch((error: unknown) =>
          this.parts.report('a lifetime could not be renewed', { sandboxId, error }),
        );
    }
  }

  async close(): Promise<void> {
    for (const relay of this.relays.values()) (await relay.catch(() => undefined))?.close();
    this.relays.clear();
  }

  private requirePause(mode: 'memory' | 'files' = 'files'): void {
    const { pause } = this.parts.capabilities;
    if (pause === 'memory' || pause === mode) return;
    throw new TorporError('capability_unsupported', `The provider keeps no ${mode} over a pause.`);
  }

  private async alive(instance: Instance, signal: AbortSignal): Promise<InstanceRecord> {
    const record = (await this.parts.records.find(instance)) ?? (await this.adopt(instance, signal));
    if (record === undefined) throw notAlive(instance);
    return record;
  }

  /** A server may have died between the provider's answer and the record of it. */
  private async adopt(instance: Instance, signal: AbortSignal): Promise<InstanceRecord | undefined> {
    const { provider, records, home } = this.parts;
    const { sandboxId, generation } = instance;
    const mark = { [HOME]: home, [SANDBOX]: sandboxId, [GENERATION]: String(generation) };
    for await (const { providerId } of provider.list(mark, signal)) {
      if ((await records.isUsed(providerId)) || (await records.isKept(providerId))) continue;
      const reached = await provider.connect(providerId, 'restore', signal);
      const record = { providerId, reached, state: 'running', captured: null } as const;
      await records.write(instance, record);
      return record;
    }
    return undefined;
  }

  /** Recorded, and then those at the provider that no record explains. */
  private async *everything(only: SandboxId | null, signal: AbortSignal) {
    const { records, provider, home } = this.parts;
    for await (const { sandboxId, generation, record } of records.all()) {
      if (only !== null && sandboxId !== only) continue;
      yield { sandboxId, generation, providerId: record.providerId, captured: record.captured !== null };
    }
    const mark = { [HOME]: home, ...(only === null ? {} : { [SANDBOX]: only }) };
    for await (const { providerId, metadata } of provider.list(mark, signal)) {
      const sandboxId = metadata[SANDBOX] ?? '';
      if (!isId('sbx', sandboxId)) continue;
      if ((await records.isUsed(providerId)) || (await records.isKept(providerId))) continue;
      yield { sandboxId, generation: Number(metadata[GENERATION]), providerId, captured: false };
    }
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
    const { clock } = this.parts;
    const dial = (port: number) => this.dial(instance, port, signal);
    await startWhatIsMissing({ agent, clock, portFor: declaredPort, dial }, services, signal).finally(() =>
      agent.close(),
    );
  }

  private relay(instance: Instance, { reached }: InstanceRecord, port: number) {
    const name = `${instance.sandboxId.slice(-8)}-${instance.generation}-${port}`;
    const known = this.relays.get(name);
    if (known !== undefined) return known;
    if (reached === null) throw notAlive(instance);
    const token = randomBytes(16).toString('hex');
    const { sandboxUrl } = this.parts.provider.options;
    const socketPath = join(this.parts.socketDir, `${name}.sock`);
    const opening = openRelay({
      socketPath,
      reached,
      port,
      sandboxUrl,
      ...(port === AGENT_PORT ? { token } : {}),
    }).then((relay) => ({ ...relay, token }));
    this.relays.set(name, opening);
    return opening;
  }

  private async closeRelays({ sandboxId, generation }: Instance): Promise<void> {
    for (const [name, relay] of this.relays) {
      if (!name.startsWith(`${sandboxId.slice(-8)}-${generation}-`)) continue;
      this.relays.delete(name);
      (await relay.catch(() => undefined))?.close();
    }
  }
}

function providerIdOf({ needs }: SealedCheckpoint): string | null {
  const { paused } = needs;
  return typeof paused === 'string' ? paused : null;
}

function missing(checkpointId: CheckpointId): TorporError {
  return new TorporError('checkpoint_missing', 'The provider has no such sandbox any more.', {
    checkpointId,
  });
}

function missingIfGone(thrown: unknown, id: CheckpointId): unknown {
  return thrown instanceof TorporError && thrown.code === 'expired' ? missing(id) : thrown;
}

function notAlive({ sandboxId, generation }: Instance): TorporError {
  return new TorporError('unreachable', `Generation ${generation} of ${sandboxId} is not alive.`, {
    sandboxId,
  });
}
