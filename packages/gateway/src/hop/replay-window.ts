/**
 * Which numbers of a sender were used. Requests overtake each other on different connections, so numbers come out of order:
 * a bit for each of the last numbers says whether it has come. Older numbers are refused. Memory does not grow with traffic.
 */

/** More than requests can overtake each other by. */
const WIDTH = 65_536;

interface Session {
  highest: number;
  readonly bits: Uint32Array;
  usedAt: number;
}

export class ReplayWindow {
  readonly #keptMs: number;
  /** One for each process of another node. A process that ended is forgotten when its requests are too old anyway. */
  readonly #sessions = new Map<string, Session>();

  constructor(keptMs: number) {
    this.#keptMs = keptMs;
  }

  /** Whether the number is new. Call it only for what is signed: a stranger could fill the memory. */
  accept(session: string, number: number, now: number): boolean {
    const known = this.#sessions.get(session) ?? this.#begin(session, now);
    known.usedAt = now;
    if (number <= known.highest - WIDTH) return false;
    if (number > known.highest) this.#advance(known, number);
    const at = number % WIDTH;
    const word = at >>> 5;
    const bit = 1 << (at & 31);
    if (((known.bits[word] as number) & bit) !== 0) return false;
    known.bits[word] = (known.bits[word] as number) | bit;
    return true;
  }

  #begin(session: string, now: number): Session {
    for (const [name, { usedAt }] of this.#sessions)
      if (now - usedAt > this.#keptMs) this.#sessions.delete(name);
    const made = { highest: 0, bits: new Uint32Array(WIDTH / 32), usedAt: now };
    this.#sessions.set(session, made);
    return made;
  }

  /** Clears the bits of the numbers that are skipped, which were those of numbers that are too old now. */
  #advance(session: Session, number: number): void {
    if (number - session.highest >= WIDTH) session.bits.fill(0);
    else {
      for (let skipped = session.highest + 1; skipped <= number; skipped++) {
        const at = skipped % WIDTH;
        session.bits[at >>> 5] = (session.bits[at >>> 5] as number) & ~(1 << (at & 31));
      }
    }
    session.highest = number;
  }
}
