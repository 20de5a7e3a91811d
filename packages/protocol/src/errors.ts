/**
 * Every error code of the API, as one closed set. A code without an HTTP status, an exit code, a hint and a
 * retryable flag does not compile.
 */

export const ERROR_CODES = [
  'not_found',
  'expired',
  'killed',
  'lost',
  'unreachable',
  'transitioning',
  'checkpoint_missing',
  'checkpoint_corrupt',
  'checkpoint_unreadable',
  'checkpoint_incompatible',
  'capability_unsupported',
  'conflict',
  'idempotency_mismatch',
  'quota_exceeded',
  'capacity',
  'storage_full',
  'storage_readonly',
  'in_use',
  'version_unsupported',
  'timeout',
  'port_closed',
  'no_answer',
  'invalid_request',
  'unauthenticated',
  'forbidden',
  'internal',
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

/** The error codes of the Connect protocol, which agents speak. */
export type ConnectCode =
  | 'canceled'
  | 'unknown'
  | 'invalid_argument'
  | 'deadline_exceeded'
  | 'not_found'
  | 'already_exists'
  | 'permission_denied'
  | 'resource_exhausted'
  | 'failed_precondition'
  | 'aborted'
  | 'out_of_range'
  | 'unimplemented'
  | 'internal'
  | 'unavailable'
  | 'data_loss'
  | 'unauthenticated';

interface ErrorFacts {
  readonly http: number;
  readonly connect: ConnectCode;
  /** The exit code of the `torpor` command. */
  readonly exit: 1 | 10 | 11 | 12 | 13 | 14 | 15;
  /** Whether the same request may succeed later without any change. */
  readonly retryable: boolean;
  readonly hint: string;
}

const FACTS: Readonly<Record<ErrorCode, ErrorFacts>> = {
  not_found: {
    http: 404,
    connect: 'not_found',
    exit: 12,
    retryable: false,
    hint: 'Check the id, and that the key belongs to the organisation that owns it.',
  },
  expired: {
    http: 410,
    connect: 'not_found',
    exit: 14,
    retryable: false,
    hint: 'It was removed when its time ran out. Create a new one, or start from a checkpoint.',
  },
  killed: {
    http: 410,
    connect: 'failed_precondition',
    exit: 14,
    retryable: false,
    hint: 'A killed sandbox does not come back. Create a new one from one of its named checkpoints.',
  },
  lost: {
    http: 410,
    connect: 'data_loss',
    exit: 14,
    retryable: false,
    hint: 'No usable checkpoint is left; the events of the sandbox say what was found.',
  },
  unreachable: {
    http: 503,
    connect: 'unavailable',
    exit: 14,
    retryable: true,
    hint: 'The runtime could not be asked. Nothing was concluded from that; try again.',
  },
  transitioning: {
    http: 409,
    connect: 'aborted',
    exit: 14,
    retryable: true,
    hint: 'Another operation is under way; the answer names it. Wait for it, then try again.',
  },
  checkpoint_missing: {
    http: 409,
    connect: 'data_loss',
    exit: 14,
    retryable: false,
    hint: 'Allow a fallback ("files", "previous" or "template"), or name another checkpoint in "from".',
  },
  checkpoint_corrupt: {
    http: 409,
    connect: 'data_loss',
    exit: 14,
    retryable: false,
    hint: 'Allow a fallback ("files", "previous" or "template"), or name another checkpoint in "from".',
  },
  checkpoint_unreadable: {
    http: 503,
    connect: 'unavailable',
    exit: 14,
    retryable: true,
    hint: 'The checkpoint store did not answer properly. The sandbox stays paused; try again.',
  },
  checkpoint_incompatible: {
    http: 409,
    connect: 'failed_precondition',
    exit: 14,
    retryable: false,
    hint: 'Its memory was made by another runtime build or on another CPU. Allow the fallback "files".',
  },
  capability_unsupported: {
    http: 422,
    connect: 'unimplemented',
    exit: 14,
    retryable: false,
    hint: 'This runtime cannot do that; GET /v1/runtimes lists what each can.',
  },
  conflict: {
    http: 409,
    connect: 'failed_precondition',
    exit: 14,
    retryable: false,
    hint: 'The thing is not in a state that allows this.',
  },
  idempotency_mismatch: {
    http: 422,
    connect: 'invalid_argument',
    exit: 14,
    retryable: false,
    hint: 'This Idempotency-Key was used with another body. Use a new key for a new request.',
  },
  quota_exceeded: {
    http: 429,
    connect: 'resource_exhausted',
    exit: 14,
    retryable: true,
    hint: 'A limit of the organisation is reached. Remove something, or ask for a higher limit.',
  },
  capacity: {
    http: 503,
    connect: 'resource_exhausted',
    exit: 14,
    retryable: true,
    hint: 'The machine is full at the moment. Try again, or pause what is not needed.',
  },
  storage_full: {
    http: 507,
    connect: 'resource_exhausted',
    exit: 15,
    retryable: true,
    hint: 'Make room on the disk of the data directory. Nothing was changed.',
  },
  storage_readonly: {
    http: 503,
    connect: 'unavailable',
    exit: 15,
    retryable: false,
    hint: 'Make the data directory writable for the user that runs Torpor, or choose another one.',
  },
  in_use: {
    http: 409,
    connect: 'failed_precondition',
    exit: 1,
    retryable: false,
    hint: 'Stop the other process, or give this one a data directory of its own (--data-dir).',
  },
  version_unsupported: {
    http: 409,
    connect: 'failed_precondition',
    exit: 1,
    retryable: false,
    hint: 'The data was written by a newer version. Run that version or a later one.',
  },
  timeout: {
    http: 504,
    connect: 'deadline_exceeded',
    exit: 14,
    retryable: true,
    hint: 'It took longer than allowed. Look at the operation to see how far it came.',
  },
  port_closed: {
    http: 502,
    connect: 'unavailable',
    exit: 14,
    retryable: true,
    hint: 'Nothing in the sandbox listens there. Start the program, or declare it as a service.',
  },
  no_answer: {
    http: 502,
    connect: 'unavailable',
    exit: 14,
    retryable: true,
    hint: 'The program in the sandbox broke the connection off. Its own output says why.',
  },
  invalid_request: {
    http: 400,
    connect: 'invalid_argument',
    exit: 10,
    retryable: false,
    hint: 'Correct the request; "details" names the fields.',
  },
  unauthenticated: {
    http: 401,
    connect: 'unauthenticated',
    exit: 11,
    retryable: false,
    hint: 'Send a valid key: "Authorization: Bearer <key>" or "X-API-Key".',
  },
  forbidden: {
    http: 403,
    connect: 'permission_denied',
    exit: 13,
    retryable: false,
    hint: 'This key may not do that.',
  },
  internal: {
    http: 500,
    connect: 'internal',
    exit: 14,
    retryable: false,
    hint: 'This is a fault of Torpor. The request id finds it in the logs.',
  },
};

export function factsOf(code: ErrorCode): ErrorFacts {
  return FACTS[code];
}

export interface ErrorDetails {
  readonly sandboxId?: string;
  readonly operationId?: string;
  readonly checkpointId?: string;
  readonly retryAfterMs?: number;
  /** Overrides the code's default: a command that may have run is not safe to repeat. */
  readonly retryable?: boolean;
  /** Overrides the code's default hint. */
  readonly hint?: string;
  readonly details?: Readonly<Record<string, unknown>>;
  /** For the logs; never sent to a client. */
  readonly cause?: unknown;
}

/** An error in a response, without the request id that the API adds. */
export interface ErrorBody {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryable: boolean;
  readonly hint: string;
  readonly retryAfterMs?: number;
  readonly sandboxId?: string;
  readonly operationId?: string;
  readonly checkpointId?: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/**
 * The one error class of this project.
 *
 * ```ts
 * throw new TorporError('not_found', `There is no sandbox ${id}.`, { sandboxId: id });
 * ```
 */
export class TorporError extends Error {
  override readonly name = 'TorporError';
  readonly code: ErrorCode;
  readonly #extra: ErrorDetails;

  constructor(code: ErrorCode, message: string, extra: ErrorDetails = {}) {
    super(message, extra.cause === undefined ? undefined : { cause: extra.cause });
    this.code = code;
    this.#extra = extra;
  }

  get retryable(): boolean {
    return this.#extra.retryable ?? FACTS[this.code].retryable;
  }

  get hint(): string {
    return this.#extra.hint ?? FACTS[this.code].hint;
  }

  /** The same error with additional ids and details; existing ones stay. */
  with(extra: ErrorDetails): TorporError {
    const details = { ...extra.details, ...this.#extra.details };
    return new TorporError(this.code, this.message, {
      ...extra,
      ...this.#extra,
      ...(Object.keys(details).length === 0 ? {} : { details }),
    });
  }

  toBody(): ErrorBody {
    const { sandboxId, operationId, checkpointId, retryAfterMs, details } = this.#extra;
    return {
      code: this.code,
      message: this.message,
      retryable: this.retryable,
      hint: this.hint,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      ...(sandboxId === undefined ? {} : { sandboxId }),
      ...(operationId === undefined ? {} : { operationId }),
      ...(checkpointId === undefined ? {} : { checkpointId }),
      ...(details === undefined ? {} : { details }),
    };
  }

  /** Reads the output of `toBody`; the unknown code of a newer version becomes `internal`. */
  static fromBody(body: ErrorBody): TorporError {
    const { code, message, ...extra } = body;
    return new TorporError(isErrorCode(code) ? code : 'internal', message, extra);
  }

  /** The only converter from thrown values. An unknown value becomes `internal`. */
  static from(thrown: unknown): TorporError {
    if (thrown instanceof TorporError) return thrown;
    return new TorporError('internal', 'Something went wrong inside Torpor.', { cause: thrown });
  }
}

export function isErrorCode(text: string): text is ErrorCode {
  return (ERROR_CODES as readonly string[]).includes(text);
}
