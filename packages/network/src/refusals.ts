/**
 * Reports refused connections in a bounded number of records. The first of a kind is reported at once. Further ones are
 * counted and reported at the end of a time window. Beyond a number of kinds all others are counted together.
 */
import type { Clock } from '@torpor/engine';

const REASONS = {
  host_address: 'the address belongs to the host',
  sandbox_address: 'the address belongs to a sandbox',
  private_address: 'the address is private or reserved',
  denied: 'a rule of the deny list matches',
  not_allowed: 'no rule of the allow list matches',
  no_name: 'only names are allowed there, and the connection shows none',
  unclear_name: 'the name in the connection can be read in two ways',
  too_slow: 'the name in the connection was not sent in time',
  too_many: 'the sandbox has too many connections',
  wrong_host: 'the Host of a request is not the name of the connection',
  untrusted_server: 'the certificate of the server could not be verified',
  untrusted_egress:
    'the program did not accept the certificate of the egress, which a secret for the host needs',
  only_tcp: 'only TCP and lookups of names leave a sandbox',
} as const;

export type RefusalReason = keyof typeof REASONS;

export interface RefusedAttempt {
  readonly via: 'tcp' | 'udp' | 'dns';
  /** An address with its port, or the name that was looked up. */
  readonly destination: string;
  /** The name that was observed in the connection. */
  readonly name: string | null;
  readonly reason: RefusalReason;
  /** The text of the rule that refused. */
  readonly rule: string | null;
}

export interface Refusal extends RefusedAttempt {
  readonly instance: string;
  readonly at: number;
  /** The reason as a sentence for the user of the sandbox. */
  readonly message: string;
  /** The number of attempts in this record. */
  readonly count: number;
}

export interface RefusalsOptions {
  readonly onRefusal: (refusal: Refusal) => void;
  readonly clock: Clock;
  readonly windowMs?: number;
  readonly kindsPerWindow?: number;
}

interface Window {
  /** Counts the attempts after the first of each kind. */
  readonly repeated: Map<string, { readonly attempt: RefusedAttempt; count: number }>;
}

const WINDOW_MS = 10_000;
const KINDS_PER_WINDOW = 32;

export class Refusals {
  readonly #options: Required<RefusalsOptions>;
  readonly #windows = new Map<string, Window>();
  readonly #closing = new AbortController();

  constructor(options: RefusalsOptions) {
    this.#options = { windowMs: WINDOW_MS, kindsPerWindow: KINDS_PER_WINDOW, ...options };
  }

  record(instance: string, attempt: RefusedAttempt): void {
    if (this.#closing.signal.aborted) return;
    const { repeated: more } = this.#windowOf(instance);
    const kind = `${attempt.via} ${attempt.reason} ${attempt.destination} ${attempt.name}`;
    const known = more.get(kind);
    if (known !== undefined) {
      known.count++;
    } else if (more.size < this.#options.kindsPerWindow) {
      more.set(kind, { attempt, count: 0 });
      this.#report(instance, attempt, 1);
    } else {
      const other = `${attempt.via} ${attempt.reason}`;
      const entry = more.get(other) ?? {
        attempt: { ...attempt, destination: 'others', name: null, rule: null },
        count: 0,
      };
      entry.count++;
      more.set(other, entry);
    }
  }

  /** Reports the attempts that were only counted so far. */
  close(): void {
    this.#closing.abort();
    for (const instance of [...this.#windows.keys()]) this.#end(instance);
  }

  #windowOf(instance: string): Window {
    const open = this.#windows.get(instance);
    if (open !== undefined) return open;
    const window: Window = { repeated: new Map() };
    this.#windows.set(instance, window);
    this.#options.clock.sleep(this.#options.windowMs, this.#closing.signal).then(
      () => this.#end(instance),
      () => {},
    );
    return window;
  }

  #end(instance: string): void {
    const window = this.#windows.get(instance);
    this.#windows.delete(instance);
    for (const { attempt, count } of window?.repeated.values() ?? []) {
      if (count > 0) this.#report(instance, attempt, count);
    }
  }

  #report(instance: string, attempt: RefusedAttempt, count: number): void {
    const at = this.#options.clock.now();
    this.#options.onRefusal({ ...attempt, instance, at, message: messageOf(attempt), count });
  }
}

function messageOf({ via, destination, name, reason, rule }: RefusedAttempt): string {
  const what = via === 'dns' ? `The lookup of ${destination}` : `A connection to ${destination}`;
  const shown = name === null ? '' : ` (${name})`;
  const by = rule === null ? '' : `: ${rule}`;
  return `${what}${shown} was refused: ${REASONS[reason]}${by}.`;
}
