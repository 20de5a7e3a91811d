/**
 * The line of those who want to one port of a sandbox. Whoever comes to an open door and finds a free connection
 * passes at once; everybody else waits here, and connections are handed out in order of arrival. Being held and
 * waiting for a connection are the same thing.
 */
import type { Address, AgentAddress, Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { SandboxFacts } from '../sandboxes.ts';
import type { GatewaySettings } from '../settings.ts';
import { connect, PortClosed } from '../upstream/connect.ts';
import { Connection, type ConnectionOwner } from '../upstream/connection.ts';
import type { Exchange } from './exchange.ts';
import { notRunning } from './refusals.ts';

/** One run of a sandbox, as far as this gateway believes in it. A door that was closed begins a new one. */
export interface GateEpoch {
  readonly sandbox: SandboxFacts;
}

/** Who may pass: everybody, or only who waited when the door was closed, or nobody until it opens. */
export type Admits2 = 'everybody' | 'earlier' | 'nobody';

/** What those in line may hope for at a port that is closed. */
export interface PortGrace {
  /** How long from now on. */
  readonly ms: number;
  /** The declared service that is still coming up, if that is the reason. */
  readonly starting: string | undefined;
}

/** What a line asks of its door. */
export interface QueueGate {
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** The present run; undefined when it is not known that there is one. */
  readonly epoch: GateEpoch | undefined;
  readonly admits: Admits2;
  /** Finds out whether the sandbox runs, and makes it; then all lines move on. */
  ensureRunning(): void;
  /** The run is not what it was believed to be. */
  epochEnded(era: GateEpoch): void;
  dial(era: GateEpoch, port: number): Promise<Address | AgentAddress | null>;
  portGraceOf(era: GateEpoch, port: number): PortGrace;
  explainClosed(era: GateEpoch, port: number, hope: PortGrace): Promise<TorporError>;
  leftQueue(passage: Exchange): void;
  /** Nothing may be left of a line. */
  releaseIfUnused(): void;
}

const FIRST_LOOK_MS = 5;
const LONGEST_LOOK_MS = 200;
/** A connection that its server closes in a moment is not used any more. */
const MARGIN_MS = 1_000;

interface Idle {
  readonly connection: Connection;
  readonly until: number;
}

export class AdmissionQueue implements ConnectionOwner {
  readonly port: number;
  private readonly door: QueueGate;
  private readonly waiting: Exchange[] = [];
  /** How many of them, from the first on, waited already when the door was closed. */
  private earlier = 0;
  private readonly eraOf = new Map<Connection, GateEpoch>();
  /** Those used last come first: the others may then be closed. */
  private readonly idle: Idle[] = [];
  /** New connections on which nothing has come back yet; the app may not even have taken them up. */
  private readonly unheard = new Set<Connection>();
  private connecting = 0;
  /** A question that is under way; whoever needs a connection meanwhile takes its answer too. */
  private dialling: ReturnType<QueueGate['dial']> | undefined;
  /** Whether somebody has answered on the port in this run. */
  private proven: GateEpoch | undefined;
  /** The run in which it was last found closed, and how long the next rest is. */
  private missedIn: GateEpoch | undefined;
  /** Taken once, when it was first found closed: what is left of a start must not be counted from a later look. */
  private hope: (PortGrace & { readonly since: number }) | undefined;
  private restMs = FIRST_LOOK_MS;
  private isResting = false;

  constructor(port: number, door: QueueGate) {
    this.port = port;
    this.door = door;
  }

  get isEmpty(): boolean {
    return this.waiting.length === 0 && this.eraOf.size === 0 && this.connecting === 0;
  }

  /** Whether somebody is about to pass; not at a port that has turned out to be closed. */
  get isMoving(): boolean {
    return this.passable > 0 && this.door.epoch !== undefined && !this.isResting;
  }

  private get passable(): number {
    const { admits } = this.door;
    if (admits === 'everybody') return this.waiting.length;
    return admits === 'earlier' ? this.earlier : 0;
  }

  /** The door is being closed. */
  closing(): void {
    this.earlier = this.waiting.length;
  }

  /** A free connection, when nobody is before the one who asks. */
  takeAtOnce(): Connection | undefined {
    const { admits, epoch: era } = this.door;
    const isFree = this.waiting.length === 0 && admits === 'everybody' && era !== undefined;
    return isFree ? this.takeIdle() : undefined;
  }

  private takeIdle(): Connection | undefined {
    const now = this.door.clock.monotonic();
    for (let free = this.idle.pop(); free !== undefined; free = this.idle.pop()) {
      const { connection, until } = free;
      if (connection.isUsable && now < until && this.eraOf.get(connection) === this.door.epoch) {
        connection.socket.setTimeout(0);
        return connection;
      }
      connection.socket.destroy();
    }
    return undefined;
  }

  join(passage: Exchange): void {
    this.waiting.push(passage);
    this.pump();
  }

  /** Back to the head of the line, for one whose connection was dead already. The other free ones are no better. */
  joinFirst(passage: Exchange): void {
    this.dropIdle();
    this.waiting.unshift(passage);
    this.earlier++;
    this.pump();
  }

  /** False when it is not in line (any more). */
  leave(passage: Exchange): boolean {
    const at = this.waiting.indexOf(passage);
    if (at < 0) return false;
    this.waiting.splice(at, 1);
    if (at < this.earlier) this.earlier--;
    this.door.leftQueue(passage);
    return true;
  }

  refuseAll(error: TorporError): void {
    for (const passage of [...this.waiting]) this.refuse(passage, error);
  }

  /** Moves the line on as far as it can be moved now. */
  pump(): void {
    if (this.passable === 0 || this.isResting) return;
    const { epoch: era, settings } = this.door;
    if (era === undefined) {
      for (const passage of this.waiting.filter(({ countsAsUse: isUse }) => !isUse))
        this.refuse(passage, notRunning());
      if (this.waiting.length > 0) this.door.ensureRunning();
      return;
    }
    while (this.passable > 0 && this.mayOvertake) {
      const free = this.takeIdle();
      if (free === undefined) break;
      this.handOver(free);
    }
    // Until somebody has answered there, one attempt is enough to know.
    const atOnce = this.proven === era ? settings.connectingAtOnce : 1;
    while (this.connecting < Math.min(this.passable, atOnce)) this.open(era);
  }

  /** A connection is handed to the next in line, or kept for whoever comes. */
  becameIdle(connection: Connection, promisedMs: number | undefined): void {
    const { epoch: era, settings, clock } = this.door;
    if (era === undefined || this.eraOf.get(connection) !== era) return void connection.socket.destroy();
    if (this.passable > 0 && (connection.requests === 0 || this.mayOvertake)) {
      this.handOver(connection);
      return;
    }
    const promised = promisedMs === undefined ? settings.idleConnectionMs : promisedMs - MARGIN_MS;
    const ms = Math.min(promised, settings.idleConnectionMaxMs);
    if (ms <= 0) return void connection.socket.destroy();
    connection.socket.setTimeout(ms);
    this.idle.push({ connection, until: clock.monotonic() + ms });
  }

  firstByteReceived(connection: Connection): void {
    if (this.unheard.delete(connection)) this.pump();
  }

  connectionClosed(connection: Connection): void {
    this.firstByteReceived(connection);
    this.eraOf.delete(connection);
    const at = this.idle.findIndex((free) => free.connection === connection);
    if (at >= 0) this.idle.splice(at, 1);
    this.door.releaseIfUnused();
  }

  dropIdle(): void {
    for (const { connection } of this.idle.splice(0)) connection.reset();
  }

  /**
   * What is sent on a connection that the app knows arrives before what was sent earlier on one that it has not
   * taken up yet. Those who wait keep their order, so they get new connections until the others are heard from.
   */
  private get mayOvertake(): boolean {
    return this.unheard.size === 0;
  }

  private handOver(connection: Connection): void {
    const next = this.waiting.shift();
    if (next === undefined) return;
    if (this.earlier > 0) this.earlier--;
    if (connection.requests === 0) this.unheard.add(connection);
    this.door.leftQueue(next);
    next.begin(connection);
  }

  private open(era: GateEpoch): void {
    this.connecting++;
    this.connect(era).then(
      (connection) => {
        this.connecting--;
        this.hope = undefined;
        this.restMs = FIRST_LOOK_MS;
        if (this.door.epoch === era) this.proven = era;
        this.becameIdle(connection, undefined);
        this.pump();
      },
      (thrown: unknown) => {
        this.connecting--;
        this.missed(era, thrown);
      },
    );
  }

  private async connect(era: GateEpoch): Promise<Connection> {
    const { clock, settings } = this.door;
    const found = await this.dial(era);
    if (found === null) throw new PortClosed('nothing listens');
    const [address, token] = 'token' in found ? [found.address, found.token] : [found, undefined];
    const socket = await connect(address, clock, settings.connectMs);
    const connection = new Connection(socket, token, settings.maxHeadBytes, this);
    this.eraOf.set(connection, era);
    return connection;
  }

  private dial(era: GateEpoch): ReturnType<QueueGate['dial']> {
    this.dialling ??= this.door.dial(era, this.port).finally(() => {
      this.dialling = undefined;
    });
    return this.dialling;
  }

  private missed(era: GateEpoch, thrown: unknown): void {
    if (this.door.epoch !== era || this.waiting.length === 0) return void this.pump();
    if (this.missedIn !== era) {
      this.missedIn = era;
      this.hope = undefined;
      this.restMs = FIRST_LOOK_MS;
    }
    if (!(thrown instanceof PortClosed)) {
      // The sandbox may have changed under us. It is looked at again, and says itself what has become of it.
      this.door.epochEnded(era);
      return void this.rest();
    }
    this.proven = undefined;
    const now = this.door.clock.monotonic();
    this.hope ??= { ...this.door.portGraceOf(era, this.port), since: now };
    const { hope } = this;
    if (now - hope.since < hope.ms) return void this.rest();
    this.hope = undefined;
    const hopeless = [...this.waiting];
    this.isResting = true;
    this.door.explainClosed(era, this.port, hope).then((error) => {
      this.isResting = false;
      for (const passage of hopeless) this.refuse(passage, error);
      this.pump();
    });
  }

  private refuse(passage: Exchange, error: TorporError): void {
    if (this.leave(passage)) passage.refuse(error);
  }

  private rest(): void {
    const ms = this.restMs;
    this.restMs = Math.min(2 * ms, LONGEST_LOOK_MS);
    this.isResting = true;
    this.door.clock.sleep(ms).then(() => {
      this.isResting = false;
      this.pump();
    });
  }
}
