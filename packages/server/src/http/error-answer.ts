/** Converts any failure into the one error shape of the API. */
import { type ErrorBody, factsOf, type RequestId, TorporError } from '@torpor/protocol';

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly error: TorporError;
}

/** The fields of errors that Fastify throws itself. */
interface FrameworkError {
  readonly statusCode?: number;
  readonly message: string;
  readonly validation?: readonly { readonly instancePath?: string; readonly message?: string }[];
  readonly validationContext?: string;
}

const PART_NAMES: Readonly<Record<string, string>> = {
  body: 'body',
  querystring: 'query',
  params: 'path',
  headers: 'headers',
};

/** `sandboxId` is the sandbox of the request, for errors that do not name one. */
export function answerOf(thrown: unknown, requestId: RequestId, sandboxId?: string): ErrorAnswer {
  const error = toTorporError(thrown);
  const { code } = error;
  const errorBody: ErrorBody = error.toBody();
  // Internal details stay in the log, where the request id finds them (R114).
  const shown =
    code === 'internal'
      ? { ...errorBody, message: 'Something went wrong inside Torpor.', details: undefined }
      : errorBody;
  const { retryAfterMs } = errorBody;
  return {
    status: statusOf(thrown, error),
    headers: retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) },
    body: JSON.stringify({
      error: { ...(sandboxId === undefined ? {} : { sandboxId }), ...shown, requestId },
    }),
    error,
  };
}

/** Statuses that are more specific than the status of `invalid_request`, as 413 and 405. */
const SPECIFIC_STATUSES: ReadonlySet<number> = new Set([405, 408, 413, 414, 415, 431]);

export class HttpRefusal extends TorporError {
  readonly statusCode: number;

  constructor(statusCode: number, message: string, hint: string) {
    super('invalid_request', message, { hint });
    this.statusCode = statusCode;
  }
}

function statusOf(thrown: unknown, error: TorporError): number {
  const { statusCode } = (thrown ?? {}) as { statusCode?: unknown };
  const finer =
    error.code === 'invalid_request' && typeof statusCode === 'number' && SPECIFIC_STATUSES.has(statusCode);
  return finer ? (statusCode as number) : factsOf(error.code).http;
}

/** Converts errors of Fastify too. */
export function toTorporError(thrown: unknown): TorporError {
  if (thrown instanceof TorporError) return thrown;
  if (!(thrown instanceof Error)) return TorporError.from(thrown);
  const { validation, validationContext, statusCode } = thrown as Error & FrameworkError;
  if (validation !== undefined) return invalid(validation, validationContext ?? 'request');
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return new TorporError('invalid_request', thrown.message, { cause: thrown });
  }
  return TorporError.from(thrown);
}

function invalid(validation: NonNullable<FrameworkError['validation']>, context: string): TorporError {
  // Every path parameter is an id. A text that has not the form of an id cannot exist.
  if (context === 'params') return new TorporError('not_found', 'Nothing has this id.');
  const fields = validation.slice(0, 20).map(({ instancePath = '', message = 'is not valid' }) => ({
    path: instancePath.split('/').filter(Boolean).join('.'),
    message,
  }));
  const [first] = fields;
  const where = first?.path ? ` at "${first.path}"` : '';
  return new TorporError(
    'invalid_request',
    `The ${PART_NAMES[context] ?? context} is not valid${where}: ${first?.message}.`,
    { details: { in: PART_NAMES[context] ?? context, fields } },
  );
}
