/**
 * Which instances there are: those that are written down, and those at the provider that no record explains, because
 * a server died between the provider's answer and the record of it.
 */
import type { Instance } from '@torpor/engine';
import { isId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Provider } from '../provider/provider.ts';
import type { InstanceRecord, Records } from './instance-records.ts';

const HOME = 'torpor-home';
const SANDBOX = 'torpor-sandbox';
const GENERATION = 'torpor-generation';

/** How an instance really is. */
export type Stance =
  | { readonly is: 'running' | 'frozen'; readonly record: InstanceRecord }
  | { readonly is: 'dead' };

export class Instances {
  private readonly provider: Provider;
  private readonly records: Records;
  private readonly home: string;

  constructor(provider: Provider, records: Records, home: string) {
    this.provider = provider;
    this.records = records;
    this.home = home;
  }

  async find(instance: Instance, signal: AbortSignal): Promise<InstanceRecord | undefined> {
    const { provider, records } = this;
    const known = await records.find(instance);
    if (known !== undefined) return known;
    const explained = await records.known();
    for await (const { providerId } of provider.list(this.marksOf(instance), signal)) {
      if (explained.has(providerId)) continue;
      const record = { providerId, reached: null, state: 'running', captured: null } as const;
      await records.write(instance, record);
      return record;
    }
    return undefined;
  }

  /** What it is known by at the provider. */
  marksOf({ sandboxId, generation }: Instance): Record<string, string> {
    return { [HOME]: this.home, [SANDBOX]: sandboxId, [GENERATION]: String(generation) };
  }

  /** Recorded, and then those at the provider that no record explains. */
  async *all(only: SandboxId | null, signal: AbortSignal) {
    const { records, provider, home } = this;
    for await (const { sandboxId, generation, record } of records.all(only ?? undefined)) {
      yield { sandboxId, generation, providerId: record.providerId };
    }
    const mark = { [HOME]: home, ...(only === null ? {} : { [SANDBOX]: only }) };
    const unexplained = [];
    for await (const listed of provider.list(mark, signal)) unexplained.push(listed);
    // After the list: what was made meanwhile is written down by now.
    const explained = await records.known();
    for (const { providerId, metadata } of unexplained) {
      const sandboxId = metadata[SANDBOX] ?? '';
      if (!isId('sbx', sandboxId) || explained.has(providerId)) continue;
      yield { sandboxId, generation: Number(metadata[GENERATION]), providerId };
    }
  }

  async alive(instance: Instance, signal: AbortSignal): Promise<InstanceRecord> {
    const record = await this.find(instance, signal);
    if (record === undefined) throw notAlive(instance);
    return record;
  }

  /** How it really is, which is asked of the provider and not of what is written here. */
  async stanceOf(instance: Instance, signal: AbortSignal): Promise<Stance> {
    const record = await this.find(instance, signal);
    if (record === undefined) return { is: 'dead' };
    const state = await this.provider.stateOf(record.providerId, signal);
    if (state === 'gone') return { is: 'dead' };
    if (record.state === 'held') return { is: 'frozen', record };
    if (state === 'running') return { is: 'running', record };
    return record.state === 'frozen' ? { is: 'frozen', record } : { is: 'dead' };
  }

  /**
   * Seen awake: from here on it is the instance, and no checkpoint any more. Where it came from is forgotten last, so
   * that a server that dies in between does not leave a checkpoint that nobody discards.
   */
  async awake(instance: Instance, record: InstanceRecord): Promise<void> {
    const { from, ...rest } = record;
    await this.records.write(instance, { ...record, state: 'running' });
    if (from === undefined) return;
    await this.records.letGo(from);
    await this.records.write(instance, { ...rest, state: 'running' });
  }
}

export function notAlive({ sandboxId, generation }: Instance): TorporError {
  return new TorporError('unreachable', `Generation ${generation} of ${sandboxId} is not alive.`, {
    sandboxId,
  });
}
