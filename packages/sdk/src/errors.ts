/**
 * The errors that callers catch: one class per error code, so that `instanceof` distinguishes them.
 *
 * ```ts
 * try {
 *   await torpor.sandboxes.resume(id);
 * } catch (error) {
 *   if (error instanceof CheckpointMissingError) console.log(error.checkpointId, error.hint);
 *   else throw error;
 * }
 * ```
 */
import { type ErrorCode, type ErrorDetails, factsOf, isErrorCode, TorporError } from '@torpor/protocol';

/** The facts about a failure that come from the HTTP response, not from the error itself. */
export interface Answered {
  readonly status: number;
  readonly requestId: string | null;
  /** The server's own judgement of this case, which takes precedence over the code's. */
  readonly retryable?: boolean | undefined;
}

/** A failure that the server answered with. */
export abstract class ApiError extends TorporError {
  readonly status: number;
  /** Identifies the request in the server's logs. */
  readonly requestId: string | null;
  readonly sandboxId: string | undefined;
  readonly operationId: string | undefined;
  readonly checkpointId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  readonly #retryable: boolean | undefined;

  constructor(code: ErrorCode, message: string, extra: ErrorDetails, answered: Answered) {
    super(code, message, extra);
    Object.defineProperty(this, 'name', { value: className(code), configurable: true });
    this.status = answered.status;
    this.requestId = answered.requestId;
    this.#retryable = answered.retryable;
    this.sandboxId = extra.sandboxId;
    this.operationId = extra.operationId;
    this.checkpointId = extra.checkpointId;
    this.retryAfterMs = extra.retryAfterMs;
    this.details = extra.details;
  }

  override get retryable(): boolean {
    return this.#retryable ?? super.retryable;
  }
}

/** `checkpoint_missing` becomes `CheckpointMissingError`, also when class names are minified. */
function className(code: ErrorCode): string {
  return `${code.replaceAll(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())}Error`;
}

type CodedClass<C extends ErrorCode> = new (
  message: string,
  extra: ErrorDetails,
  answered: Answered,
) => ApiError & { readonly code: C };

function coded<C extends ErrorCode>(code: C): CodedClass<C> {
  return class extends ApiError {
    declare readonly code: C;

    constructor(message: string, extra: ErrorDetails, answered: Answered) {
      super(code, message, extra, answered);
    }
  };
}

export class NotFoundError extends coded('not_found') {}
export class ExpiredError extends coded('expired') {}
export class KilledError extends coded('killed') {}
export class LostError extends coded('lost') {}
export class UnreachableError extends coded('unreachable') {}
export class TransitioningError extends coded('transitioning') {}
export class CheckpointMissingError extends coded('checkpoint_missing') {}
export class CheckpointCorruptError extends coded('checkpoint_corrupt') {}
export class CheckpointUnreadableError extends coded('checkpoint_unreadable') {}
export class CheckpointIncompatibleError extends coded('checkpoint_incompatible') {}
export class CapabilityUnsupportedError extends coded('capability_unsupported') {}
export class ConflictError extends coded('conflict') {}
export class IdempotencyMismatchError extends coded('idempotency_mismatch') {}
export class QuotaExceededError extends coded('quota_exceeded') {}
export class CapacityError extends coded('capacity') {}
export class StorageFullError extends coded('storage_full') {}
export class StorageReadonlyError extends coded('storage_readonly') {}
export class InUseError extends coded('in_use') {}
export class VersionUnsupportedError extends coded('version_unsupported') {}
export class TimeoutError extends coded('timeout') {}
export class PortClosedError extends coded('port_closed') {}
export class NoAnswerError extends coded('no_answer') {}
export class InvalidRequestError extends coded('invalid_request') {}
export class UnauthenticatedError extends coded('unauthenticated') {}
export class ForbiddenError extends coded('forbidden') {}
export class InternalError extends coded('internal') {}

/** Total: a code without a class does not compile. */
export const ERROR_CLASSES: { readonly [C in ErrorCode]: CodedClass<C> } = {
  not_found: NotFoundError,
  expired: ExpiredError,
  killed: KilledError,
  lost: LostError,
  unreachable: UnreachableError,
  transitioning: TransitioningError,
  checkpoint_missing: CheckpointMissingError,
  checkpoint_corrupt: CheckpointCorruptError,
  checkpoint_unreadable: CheckpointUnreadableError,
  checkpoint_incompatible: CheckpointIncompatibleError,
  capability_unsupported: CapabilityUnsupportedError,
  conflict: ConflictError,
  idempotency_mismatch: IdempotencyMismatchError,
  quota_exceeded: QuotaExceededError,
  capacity: CapacityError,
  storage_full: StorageFullError,
  storage_readonly: StorageReadonlyError,
  in_use: InUseError,
  version_unsupported: VersionUnsupportedError,
  timeout: TimeoutError,
  port_closed: PortClosedError,
  no_answer: NoAnswerError,
  invalid_request: InvalidRequestError,
  unauthenticated: UnauthenticatedError,
  forbidden: ForbiddenError,
  internal: InternalError,
};

/** The codes for responses that are not Torpor's, for example a proxy's. */
const BY_STATUS: ReadonlyMap<number, ErrorCode> = new Map([
  [400, 'invalid_request'],
  [401, 'unauthenticated'],
  [403, 'forbidden'],
  [404, 'not_found'],
  [409, 'conflict'],
  [410, 'expired'],
  [413, 'invalid_request'],
  [422, 'invalid_request'],
  [425, 'transitioning'],
  [429, 'quota_exceeded'],
  [502, 'unreachable'],
  [503, 'unreachable'],
  [504, 'timeout'],
  [507, 'storage_full'],
]);

/** The error of a response, also one that is not Torpor's. `body` is the parsed JSON, or undefined if it was not JSON. */
export function errorOfAnswer(status: number, requestId: string | null, body: unknown): ApiError {
  const said = isRecord(body)
    ? isRecord(body['error'])
      ? body['error']
      : buildErrorFields(status, body)
    : {};
  const known = typeof said['code'] === 'string' && isErrorCode(said['code']) ? said['code'] : undefined;
  // The unknown code of a newer server is mapped by its status.
  const code = known ?? BY_STATUS.get(status) ?? 'internal';
  const message = typeof said['message'] === 'string' ? said['message'] : `The server answered ${status}.`;
  return new ERROR_CLASSES[code](message, extraOf(said), {
    status,
    requestId: text(said['requestId']) ?? requestId,
    retryable: typeof said['retryable'] === 'boolean' ? said['retryable'] : undefined,
  });
}

/** The builds API has its own error format: `{detail, debug_id}`. */
function buildErrorFields(
  status: number,
  { detail, debug_id }: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  if (detail === undefined) return {};
  const { message, error_type, code, platform_message, checkpoint_id, retryable } = isRecord(detail)
    ? detail
    : { message: detail };
  const details = defined({ debug_id, error_type, platform_code: code, platform_message });
  return {
    message,
    details,
    ...defined({ checkpointId: checkpoint_id, retryable }),
    // The builds API names no invalid fields; the message describes the fault.
    ...([400, 422].includes(status) ? { hint: 'docs/builds.md describes the parameters of each call.' } : {}),
    ...(error_type === 'sandbox_expired' ? { code: 'expired' } : {}),
    ...defined({ hint: BUILD_HINTS.get(error_type) }),
  };
}

const REBUILD_HINT = 'Build it again: `torpor build rebuild <job>`, or builds.rebuild(id).';
const BUILD_HINTS: ReadonlyMap<unknown, string> = new Map([
  ['sandbox_expired', REBUILD_HINT],
  ['files_expired', REBUILD_HINT],
  ['logs_expired', 'Logs are kept for a limited time, which the operator of the server sets.'],
]);

function defined(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** An error inside a successful response (a stream, a list), with the status it would have as a response of its own. */
export function errorInside(requestId: string | null, body: unknown): ApiError {
  const { code } = errorOfAnswer(0, null, body);
  return errorOfAnswer(factsOf(code).http, requestId, body);
}

function extraOf(said: Readonly<Record<string, unknown>>): ErrorDetails {
  const texts = ['sandboxId', 'operationId', 'checkpointId', 'hint'].flatMap((key) =>
    typeof said[key] === 'string' ? [[key, said[key]]] : [],
  );
  return {
    ...Object.fromEntries(texts),
    ...(typeof said['retryAfterMs'] === 'number' ? { retryAfterMs: said['retryAfterMs'] } : {}),
    ...(isRecord(said['details']) ? { details: said['details'] } : {}),
  };
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
