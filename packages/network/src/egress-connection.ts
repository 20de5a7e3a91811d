/**
 * One connection of a sandbox to the outside: finds its destination, decides by the policy, dials, and joins both sockets.
 * A refused connection gets a reset, and the refusal is recorded with its reason.
 */
import type { Socket } from 'node:net';
import type { Clock } from '@torpor/engine';
import type { AttachedInstance } from './attached-instance.ts';
import { dial, isDialledToSelf } from './dial.ts';
import { FirstBytes, type FirstBytesResult, type PeekLimits, parseName } from './first-bytes.ts';
import { formatIpv4, parseIpv4 } from './ipv4.ts';
import { join, reset } from './joined-sockets.ts';
import type { LookUp } from './look-up.ts';
import type { OriginalDestinations } from './original-destinations.ts';
import {
  type Connection,
  type Decision,
  decideByAddress,
  decideByName,
  type ObservedName,
} from './policy.ts';
import type { Reachable } from './reachable.ts';
import type { RefusalReason, Refusals } from './refusals.ts';

export interface EgressContext {
  readonly destinations: Pick<OriginalDestinations, 'of'>;
  readonly reachable: Reachable;
  readonly lookUp: LookUp;
  readonly refusals: Refusals;
  readonly clock: Clock;
  readonly peek: PeekLimits;
  /** A client that has sent nothing for so long may be waiting for the server to send first. */
  readonly silenceMs: number;
  readonly dialMs: number;
}

export class EgressConnection {
  readonly #ctx: EgressContext;
  readonly #instance: AttachedInstance;
  readonly #client: Socket;
  readonly #closed = new AbortController();
  #target: Connection = { address: 0, port: 0 };
  #observed: ObservedName = { is: 'other' };
  /** Set when the connection was allowed and dialled. */
  #upstream: Socket | undefined;

  constructor(ctx: EgressContext, instance: AttachedInstance, client: Socket) {
    this.#ctx = ctx;
    this.#instance = instance;
    this.#client = client;
    client.on('error', () => {});
    client.once('close', () => {
      this.#closed.abort();
      instance.forget(this);
    });
  }

  get bytes(): { readonly sent: number; readonly received: number } {
    return { sent: this.#upstream?.bytesWritten ?? 0, received: this.#upstream?.bytesRead ?? 0 };
  }

  async run(): Promise<void> {
    const { destinations, reachable } = this.#ctx;
    const found = await destinations.of(this.#client);
    const address = parseIpv4(found?.address ?? '');
    if (found === undefined || address === undefined) return this.cut();
    this.#target = { address, port: found.port };
    const unreachable = reachable.reasonUnreachable(address);
    if (unreachable !== undefined) return this.#refuse(unreachable);
    const decision = decideByAddress(this.#instance.policy, this.#target);
    if (decision.is === 'needs_name') return this.#readName();
    if (decision.is === 'refuse') return this.#refuse(decision.why, decision.rule);
    await this.#connect([address]);
  }

  /** Resets both sides. */
  cut(): void {
    reset(this.#client);
    if (this.#upstream !== undefined) reset(this.#upstream);
  }

  /** Resets the connection if the policy no longer allows it. An undecided connection is decided by the new policy. */
  recheck(): void {
    if (this.#upstream === undefined) return;
    const decision = this.#decide(this.#observed);
    if (decision.is === 'refuse') this.#refuse(decision.why, decision.rule);
  }

  /** Reads the name that the client sends. A silent client is connected early if the policy allows it without a name. */
  async #readName(): Promise<void> {
    const { peek, silenceMs } = this.#ctx;
    const first = new FirstBytes(this.#client, peek);
    if (await first.isSilentFor(silenceMs)) {
      if (this.#decide({ is: 'other' }).is === 'pass') return this.#connectEarly(first);
      if (await first.isSilentFor(peek.ms)) return this.#refuse('too_slow');
    }
    const decision = this.#decideFirst(await first.result);
    if (decision?.is !== 'pass') return;
    const addresses = decision.by === 'name' ? await this.#resolve() : [this.#target.address];
    await this.#connect(addresses, first);
  }

  /** The server may send now. The first bytes of the client are still checked before they are passed on. */
  async #connectEarly(first: FirstBytes): Promise<void> {
    const upstream = await this.#open([this.#target.address]);
    if (upstream === undefined) return;
    join(upstream, this.#client);
    if (this.#decideFirst(await first.result)?.is !== 'pass') return;
    this.#send(upstream, first);
  }

  /** Undefined when the connection is refused or gone. */
  #decideFirst(result: FirstBytesResult): Decision | undefined {
    if (result.is === 'gone') return undefined;
    if (result.is === 'unclear' || result.is === 'too_slow') {
      this.#refuse(result.is === 'unclear' ? 'unclear_name' : 'too_slow');
      return undefined;
    }
    this.#observed = result;
    const decision = this.#decide(result);
    if (decision.is === 'refuse') this.#refuse(decision.why, decision.rule);
    return decision;
  }

  #decide(observed: ObservedName): Decision {
    const { resolved, policy } = this.#instance;
    const names = resolved.namesOf(this.#target.address, this.#ctx.clock.monotonic());
    return decideByName(policy, this.#target, observed, names);
  }

  /** Resolves the observed name on the host, whatever address the sandbox used. */
  async #resolve(): Promise<number[]> {
    const { lookUp, reachable } = this.#ctx;
    if (this.#observed.is !== 'name') return [];
    const found = await lookUp.addresses(this.#observed.name);
    const all = (found.is === 'found' ? found.records : []).map(({ address }) => parseIpv4(address) ?? 0);
    const isUsable = (address: number) =>
      reachable.reasonUnreachable(address) === undefined &&
      decideByAddress(this.#instance.policy, { ...this.#target, address }).is !== 'refuse';
    const usable = all.filter(isUsable);
    const [first] = all;
    if (first !== undefined && usable.length === 0)
      this.#refuse(reachable.reasonUnreachable(first) ?? 'denied');
    return usable.toSorted((a, b) => Number(b === this.#target.address) - Number(a === this.#target.address));
  }

  async #connect(addresses: readonly number[], first?: FirstBytes): Promise<void> {
    const upstream = await this.#open(addresses);
    if (upstream === undefined) return;
    join(upstream, this.#client);
    this.#send(upstream, first);
  }

  #send(upstream: Socket, first?: FirstBytes): void {
    if (first === undefined) this.#client.once('data', (chunk) => this.#observeLater(chunk));
    else upstream.write(first.bytes);
    join(this.#client, upstream);
  }

  /** The present policy did not need the name, but a later one may. */
  #observeLater(chunk: Buffer): void {
    const parsed = parseName(chunk);
    if (parsed.is !== 'name' && parsed.is !== 'nameless') return;
    this.#observed = parsed;
    this.recheck();
  }

  async #open(addresses: readonly number[]): Promise<Socket | undefined> {
    const { dialMs } = this.#ctx;
    const upstream = await dial(addresses.map(formatIpv4), this.#target.port, dialMs, this.#closed.signal);
    if (upstream === undefined) {
      this.cut();
      return undefined;
    }
    this.#upstream = upstream.on('error', () => {});
    if (this.#client.destroyed) this.cut();
    else if (isDialledToSelf(upstream)) this.#refuse('host_address');
    else this.recheck();
    return upstream.destroyed ? undefined : upstream;
  }

  #refuse(reason: RefusalReason, rule: string | null = null): void {
    const { address, port } = this.#target;
    const name = this.#observed.is === 'name' ? this.#observed.name : null;
    const destination = `${formatIpv4(address)}:${port}`;
    if (!this.#client.destroyed) {
      this.#ctx.refusals.record(this.#instance.name, { via: 'tcp', destination, name, reason, rule });
    }
    this.cut();
  }
}
