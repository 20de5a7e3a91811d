/** How a failure looks to the caller: one shape for all, whoever noticed it first. */
import { type ErrorBody, factsOf, type RequestId, TorporError } from '@torpor/protocol';

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly error: TorporError;
}

/** What Fastify throws of its own; the fields are its own too. */
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

/** `sandboxId` is the one the request was about, for errors that do not say it themselves. */
export function answerOf(thrown: unknown, requestId: RequestId, sandboxId?: string): ErrorAnswer {
  const error = toTorporError(thrown);
  const { code } = error;
  const said: ErrorBody = error.toBody();
  // What is inside stays inside: the request id leads to it in the log (R114).
  const shown =
    code === 'internal'
      ? { ...said, message: 'Something went wrong inside Torpor.', details: undefined }
      : said;
  const { retryAfterMs } = said;
  return {
    status: statusOf(thrown, error),
    headers: retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) },
    body: JSON.stringify({
      error: { ...(sandboxId === undefined ? {} : { sandboxId }), ...shown, requestId },
    }),
    error,
  };
}

/** Statuses that say more than the code's own: too large, the wrong type, the wrong method. */
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

/** Fastify's own failures too. */
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
  // Every parameter in a path is an id, and what has not the form of one cannot be there.
  if (context === 'params') return new TorporError('not_found', 'There is nothing with this id.');
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
