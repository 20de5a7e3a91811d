/**
 * One connection of a sandbox to the outside: found out where it was meant to go, decided, dialled and joined.
 * Whatever does not pass ends with a reset, and with a record of why.
 */
import type { Socket } from 'node:net';
import type { Clock } from '@torpor/engine';
import type { AttachedInstance } from './attached-instance.ts';
import { dial, isDialledToSelf } from './dial.ts';
import { FirstBytes, type FirstWords, type PeekLimits, readFirst } from './first-bytes.ts';
import { formatIpv4, parseIpv4 } from './ipv4.ts';
import { join, reset } from './joined-sockets.ts';
import type { LookUp } from './look-up.ts';
import type { OriginalDestinations } from './original-destinations.ts';
import { type Connection, type Decision, decideByAddress, decideByName, type Shown } from './policy.ts';
import type { Reachable } from './reachable.ts';
import type { RefusalReason, Refusals } from './refusals.ts';

export interface EgressGround {
  readonly destinations: Pick<OriginalDestinations, 'of'>;
  readonly reachable: Reachable;
  readonly lookUp: LookUp;
  readonly refusals: Refusals;
  readonly clock: Clock;
  readonly peek: PeekLimits;
  /** A client that has said nothing for so long may be waiting for the server to speak first. */
  readonly silenceMs: number;
  readonly dialMs: number;
}

export class EgressConnection {
  readonly #ground: EgressGround;
  readonly #instance: AttachedInstance;
  readonly #client: Socket;
  readonly #over = new AbortController();
  #target: Connection = { address: 0, port: 0 };
  #shown: Shown = { is: 'other' };
  /** There from the moment the connection was let pass. */
  #upstream: Socket | undefined;

  constructor(ground: EgressGround, instance: AttachedInstance, client: Socket) {
    this.#ground = ground;
    this.#instance = instance;
    this.#client = client;
    client.on('error', () => {});
    client.once('close', () => {
      this.#over.abort();
      instance.forget(this);
    });
  }

  get bytes(): { readonly sent: number; readonly received: number } {
    return { sent: this.#upstream?.bytesWritten ?? 0, received: this.#upstream?.bytesRead ?? 0 };
  }

  async run(): Promise<void> {
    const { destinations, reachable } = this.#ground;
    const found = await destinations.of(this.#client);
    const address = parseIpv4(found?.address ?? '');
    if (found === undefined || address === undefined) return this.cut();
    this.#target = { address, port: found.port };
    const unreachable = reachable.whyNot(address);
    if (unreachable !== undefined) return this.#refuse(unreachable);
    const decision = decideByAddress(this.#instance.policy, this.#target);
    if (decision.is === 'ask') return this.#ask();
    if (decision.is === 'refuse') return this.#refuse(decision.why, decision.rule);
    await this.#go([address]);
  }

  /** Both sides see a reset. */
  cut(): void {
    reset(this.#client);
    if (this.#upstream !== undefined) reset(this.#upstream);
  }

  /** Cuts what the policy would not let pass now. What is not decided yet will be decided by it. */
  recheck(): void {
    if (this.#upstream === undefined) return;
    const decision = this.#decide(this.#shown);
    if (decision.is === 'refuse') this.#refuse(decision.why, decision.rule);
  }

  /** Lets the connection show its name. One that only listens is let through early if it may pass unnamed. */
  async #ask(): Promise<void> {
    const { peek, silenceMs } = this.#ground;
    const first = new FirstBytes(this.#client, peek);
    if (await first.isSilentFor(silenceMs)) {
      if (this.#decide({ is: 'other' }).is === 'pass') return this.#goAhead(first);
      if (await first.isSilentFor(peek.ms)) return this.#refuse('too_slow');
    }
    const decision = this.#hear(await first.words);
    if (decision?.is !== 'pass') return;
    const addresses = decision.by === 'name' ? await this.#resolve() : [this.#target.address];
    await this.#go(addresses, first);
  }

  /** The server may speak; what the client says first is still looked at before it goes on. */
  async #goAhead(first: FirstBytes): Promise<void> {
    const upstream = await this.#open([this.#target.address]);
    if (upstream === undefined) return;
    join(upstream, this.#client);
    if (this.#hear(await first.words)?.is !== 'pass') return;
    this.#send(upstream, first);
  }

  /** Undefined when the connection is refused or gone. */
  #hear(words: FirstWords): Decision | undefined {
    if (words.is === 'gone') return undefined;
    if (words.is === 'unclear' || words.is === 'too_slow') {
      this.#refuse(words.is === 'unclear' ? 'unclear_name' : 'too_slow');
      return undefined;
    }
    this.#shown = words;
    const decision = this.#decide(words);
    if (decision.is === 'refuse') this.#refuse(decision.why, decision.rule);
    return decision;
  }

  #decide(shown: Shown): Decision {
    const { resolved, policy } = this.#instance;
    const names = resolved.namesOf(this.#target.address, this.#ground.clock.monotonic());
    return decideByName(policy, this.#target, shown, names);
  }

  /** Our own resolution of the name that was shown, whatever address the sandbox had for it. */
  async #resolve(): Promise<number[]> {
    const { lookUp, reachable } = this.#ground;
    if (this.#shown.is !== 'name') return [];
    const found = await lookUp.addresses(this.#shown.name);
    const all = (found.is === 'found' ? found.records : []).map(({ address }) => parseIpv4(address) ?? 0);
    const isFine = (address: number) =>
      reachable.whyNot(address) === undefined &&
      decideByAddress(this.#instance.policy, { ...this.#target, address }).is !== 'refuse';
    const fine = all.filter(isFine);
    const [first] = all;
    if (first !== undefined && fine.length === 0) this.#refuse(reachable.whyNot(first) ?? 'denied');
    return fine.toSorted((a, b) => Number(b === this.#target.address) - Number(a === this.#target.address));
  }

  async #go(addresses: readonly number[], first?: FirstBytes): Promise<void> {
    const upstream = await this.#open(addresses);
    if (upstream === undefined) return;
    join(upstream, this.#client);
    this.#send(upstream, first);
  }

  #send(upstream: Socket, first?: FirstBytes): void {
    if (first === undefined) this.#client.once('data', (chunk) => this.#overhear(chunk));
    else upstream.write(first.bytes);
    join(this.#client, upstream);
  }

  /** Nobody asked for the name, but a policy that came meanwhile or comes later may. */
  #overhear(chunk: Buffer): void {
    const reading = readFirst(chunk);
    if (reading.is !== 'name' && reading.is !== 'nameless') return;
    this.#shown = reading;
    this.recheck();
  }

  async #open(addresses: readonly number[]): Promise<Socket | undefined> {
    const { dialMs } = this.#ground;
    const upstream = await dial(addresses.map(formatIpv4), this.#target.port, dialMs, this.#over.signal);
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
    const name = this.#shown.is === 'name' ? this.#shown.name : null;
    const destination = `${formatIpv4(address)}:${port}`;
    if (!this.#client.destroyed) {
      this.#ground.refusals.note(this.#instance.name, { via: 'tcp', destination, name, reason, rule });
    }
    this.cut();
  }
}
