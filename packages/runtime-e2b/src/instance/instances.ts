/**
 * The instances of this server: those with a record, and those at the provider without one, because a server died between
 * the provider's answer and the record of it.
 */
import type { Instance } from '@torpor/engine';
import { isId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Connection, Provider } from '../provider/provider.ts';
import type { InstanceRecord, InstanceRecords } from './instance-records.ts';

const HOME = 'torpor-home';
const SANDBOX = 'torpor-sandbox';
const GENERATION = 'torpor-generation';

export type InstanceState =
  | { readonly is: 'running' | 'frozen'; readonly record: InstanceRecord }
  | { readonly is: 'dead' };

export class Instances {
  readonly #provider: Provider;
  readonly #records: InstanceRecords;
  readonly #home: string;

  /** `home` marks the sandboxes of this data directory at the provider. */
  constructor(provider: Provider, records: InstanceRecords, home: string) {
    this.#provider = provider;
    this.#records = records;
    this.#home = home;
  }

  async find(instance: Instance, signal: AbortSignal): Promise<InstanceRecord | undefined> {
    const known = await this.#records.find(instance);
    if (known !== undefined) return known;
    const recorded = await this.#records.recordedIds();
    for await (const { providerId } of this.#provider.list(this.metadataOf(instance), signal)) {
      if (recorded.has(providerId)) continue;
      const record = { providerId, reached: null, state: 'running', captured: null } as const;
      await this.#records.write(instance, record);
      return record;
    }
    return undefined;
  }

  /** The metadata by which the instance is found at the provider. */
  metadataOf({ sandboxId, generation }: Instance): Record<string, string> {
    return { [HOME]: this.#home, [SANDBOX]: sandboxId, [GENERATION]: String(generation) };
  }

  /** The instances with a record, then those at the provider without one. */
  async *all(only: SandboxId | null, signal: AbortSignal) {
    for await (const { sandboxId, generation, record } of this.#records.all(only ?? undefined)) {
      yield { sandboxId, generation, providerId: record.providerId };
    }
    const metadata = { [HOME]: this.#home, ...(only === null ? {} : { [SANDBOX]: only }) };
    const found = [];
    for await (const listed of this.#provider.list(metadata, signal)) found.push(listed);
    // Read after the list: a sandbox that was created meanwhile has its record by now.
    const recorded = await this.#records.recordedIds();
    for (const { providerId, metadata: given } of found) {
      const sandboxId = given[SANDBOX] ?? '';
      if (!isId('sbx', sandboxId) || recorded.has(providerId)) continue;
      yield { sandboxId, generation: Number(given[GENERATION]), providerId };
    }
  }

  async require(instance: Instance, signal: AbortSignal): Promise<InstanceRecord> {
    const record = await this.find(instance, signal);
    if (record === undefined) throw notAlive(instance);
    return record;
  }

  /** The real state, which the provider tells and not the record. */
  async stateOf(instance: Instance, signal: AbortSignal): Promise<InstanceState> {
    const record = await this.find(instance, signal);
    if (record === undefined) return { is: 'dead' };
    const state = await this.#provider.stateOf(record.providerId, signal);
    if (state === 'gone') return { is: 'dead' };
    if (record.state === 'held') return { is: 'frozen', record };
    if (state === 'running') return { is: 'running', record };
    return record.state === 'frozen' ? { is: 'frozen', record } : { is: 'dead' };
  }

  /** The connection to a running instance. Connects if this server has not yet. */
  async connectionTo(instance: Instance, signal: AbortSignal): Promise<Connection> {
    const state = await this.stateOf(instance, signal);
    if (state.is === 'dead') throw notAlive(instance);
    if (state.is === 'frozen') throw new TorporError('transitioning', 'The sandbox is being paused.');
    const { record } = state;
    if (record.reached !== null) return record.reached;
    const reached = await this.#provider.connect(record.providerId, 'restore', signal);
    await this.markRunning(instance, { ...record, reached });
    return reached;
  }

  /**
   * The sandbox was seen running: it is the instance now, and no longer a checkpoint. `from` is removed last, so that a
   * server that dies in between does not leave the record of a checkpoint behind that is never discarded.
   */
  async markRunning(instance: Instance, record: InstanceRecord): Promise<void> {
    const { from, ...rest } = record;
    await this.#records.write(instance, { ...record, state: 'running' });
    if (from === undefined) return;
    await this.#records.removeCheckpoint(from);
    await this.#records.write(instance, { ...rest, state: 'running' });
  }
}

export function notAlive({ sandboxId, generation }: Instance): TorporError {
  return new TorporError('unreachable', `Generation ${generation} of ${sandboxId} is not alive.`, {
    sandboxId,
  });
}
