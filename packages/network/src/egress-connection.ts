/**
 * One connection of a sandbox to the outside: finds its destination, decides by the policy, dials, and joins both sockets.
 * A refused connection gets a reset, and the refusal is recorded with its reason.
 */
import type { Socket } from 'node:net';
import type { Clock, UsableSecret } from '@torpor/engine';
import { nameOfUse } from '@torpor/protocol';
import type { AttachedInstance } from './attached-instance.ts';
import { looksLikeTls } from './client-hello.ts';
import { dial, isDialledToSelf } from './dial.ts';
import { FirstBytes, type FirstBytesResult, type PeekLimits, parseName } from './first-bytes.ts';
import { formatIpv4, parseIpv4 } from './ipv4.ts';
import { join, reset } from './joined-sockets.ts';
import type { LookUp } from './look-up.ts';
import type { OpenedConnections } from './opened/opened-connections.ts';
import { coversSomePort, secretsForHost } from './opened/secret-rules.ts';
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
  readonly opened: OpenedConnections;
  /** Those of these secrets that the instance may use. */
  readonly findSecrets: FindSecrets;
}

/** Called for every connection and request of an instance that uses secrets. */
export type FindSecrets = (instance: string, names: readonly string[]) => Promise<readonly UsableSecret[]>;

export class EgressConnection {
  readonly #ctx: EgressContext;
  readonly #instance: AttachedInstance;
  readonly #client: Socket;
  readonly #closed = new AbortController();
  #target: Connection = { address: 0, port: 0 };
  #observed: ObservedName = { is: 'other' };
  /** Set when the connection was allowed and dialled. */
  #upstream: Socket | undefined;
  /** The secrets that connections to some name on this port get, as of the beginning of the connection. */
  #secrets: readonly UsableSecret[] = [];
  /** The egress reads the requests of the connection and dials for each, so there may be no `#upstream`. */
  #isOpened = false;

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
    if (this.#isOpened) return { sent: this.#client.bytesRead, received: this.#client.bytesWritten };
    return { sent: this.#upstream?.bytesWritten ?? 0, received: this.#upstream?.bytesRead ?? 0 };
  }

  async run(): Promise<void> {
    const { destinations, reachable } = this.#ctx;
    const found = await destinations.of(this.#client);
    const address = parseIpv4(found?.address ?? '');
    if (found === undefined || address === undefined) return this.close();
    this.#target = { address, port: found.port };
    const unreachable = reachable.reasonUnreachable(address);
    if (unreachable !== undefined) return this.#refuse(unreachable);
    const decision = decideByAddress(this.#instance.policy, this.#target);
    if (decision.is === 'refuse') return this.#refuse(decision.why, decision.rule);
    const secrets = await this.#findSecrets();
    if (coversSomePort(secrets, found.port)) this.#secrets = secrets;
    if (decision.is === 'needs_name' || this.#secrets.length > 0) return this.#readName();
    await this.#connect([address]);
  }

  /** Resets both sides. */
  close(): void {
    reset(this.#client);
    if (this.#upstream !== undefined) reset(this.#upstream);
  }

  /** Resets the connection if the policy no longer allows it. An undecided connection is decided by the new policy. */
  recheck(): void {
    if (this.#upstream === undefined && !this.#isOpened) return;
    const decision = this.#decide(this.#observed);
    if (decision.is === 'refuse') this.#refuse(decision.why, decision.rule);
  }

  /** Reads the name that the client sends. A silent client is connected early if the policy allows it without a name. */
  async #readName(): Promise<void> {
    const { peek, silenceMs } = this.#ctx;
    const first = new FirstBytes(this.#client, peek);
    if (await first.isSilentFor(silenceMs)) {
      const mayConnect = this.#decide({ is: 'other' }).is === 'pass' && !this.#isResolvedForSecret();
      if (mayConnect) return this.#connectEarly(first);
      if (await first.isSilentFor(peek.ms)) return this.#refuse('too_slow');
    }
    const decision = this.#decideFirst(await first.result);
    if (decision?.is !== 'pass') return;
    if (this.#isForSecret(first)) return this.#openTls(first);
    const addresses = decision.by === 'name' ? await this.#resolve() : [this.#target.address];
    await this.#connect(addresses, first);
  }

  /** The server may send now. The first bytes of the client are still checked before they are passed on. */
  async #connectEarly(first: FirstBytes): Promise<void> {
    const upstream = await this.#open([this.#target.address]);
    if (upstream === undefined) return;
    join(upstream, this.#client);
    if (this.#decideFirst(await first.result)?.is !== 'pass') return;
    // The other end is an address that no lookup of the sandbox found for this name.
    if (this.#isForSecret(first)) return this.#refuse('too_slow');
    this.#send(upstream, first);
  }

  /** Undefined when the connection is refused or gone. */
  #decideFirst(result: FirstBytesResult): Decision | undefined {
    if (result.is === 'gone') return undefined;
    const isByAddress = decideByAddress(this.#instance.policy, this.#target).is === 'pass';
    if (!isByAddress && (result.is === 'unclear' || result.is === 'too_slow')) {
      this.#refuse(result.is === 'unclear' ? 'unclear_name' : 'too_slow');
      return undefined;
    }
    // A name was only read for a secret, and there is none: the connection passes as it is.
    this.#observed = result.is === 'unclear' || result.is === 'too_slow' ? { is: 'other' } : result;
    const decision = this.#decide(this.#observed);
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

  async #findSecrets(): Promise<readonly UsableSecret[]> {
    const { policy, name } = this.#instance;
    return policy.secrets.length === 0 ? [] : this.#ctx.findSecrets(name, policy.secrets.map(nameOfUse));
  }

  #secretsFor(secrets: readonly UsableSecret[], name: string): UsableSecret[] {
    return secretsForHost(secrets, this.#instance.policy.secrets, name, this.#target.port);
  }

  /** Whether our resolver returned the address for a name that gets secrets. */
  #isResolvedForSecret(): boolean {
    const names = this.#instance.resolved.namesOf(this.#target.address, this.#ctx.clock.monotonic());
    return names.some((name) => this.#secretsFor(this.#secrets, name).length > 0);
  }

  /** Only TLS: a secret is never sent in the clear. */
  #isForSecret(first: FirstBytes): boolean {
    if (this.#observed.is !== 'name' || !looksLikeTls(first.bytes)) return false;
    return this.#secretsFor(this.#secrets, this.#observed.name).length > 0;
  }

  /** Puts secrets into the requests of this connection. */
  async #openTls(first: FirstBytes): Promise<void> {
    if (this.#observed.is !== 'name') return this.close();
    const { name } = this.#observed;
    this.#isOpened = true;
    this.#client.unshift(first.bytes);
    await this.#ctx.opened.serve(this.#client, {
      name,
      port: this.#target.port,
      // The name is resolved anew for each connection, and every address is checked.
      dial: async () => this.#open(await this.#resolve()),
      secrets: async () => this.#secretsFor(await this.#findSecrets(), name),
      onRefused: (reason) => this.#record(reason),
    });
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
      // The requests of an opened connection get an answer that says so.
      if (!this.#isOpened) this.close();
      return undefined;
    }
    this.#upstream = upstream.on('error', () => {});
    if (this.#client.destroyed) this.close();
    else if (isDialledToSelf(upstream)) this.#refuse('host_address');
    else this.recheck();
    return upstream.destroyed ? undefined : upstream;
  }

  #refuse(reason: RefusalReason, rule: string | null = null): void {
    this.#record(reason, rule);
    this.close();
  }

  #record(reason: RefusalReason, rule: string | null = null): void {
    const { address, port } = this.#target;
    const name = this.#observed.is === 'name' ? this.#observed.name : null;
    const destination = `${formatIpv4(address)}:${port}`;
    if (!this.#client.destroyed) {
      this.#ctx.refusals.record(this.#instance.name, { via: 'tcp', destination, name, reason, rule });
    }
  }
}
