/** Errors as text or JSON on stderr, and their exit codes. */
import type { Colors } from './colors.ts';
import { EXIT } from './exit-codes.ts';
import { withoutUndefined } from './without-undefined.ts';

/** An error that the CLI found itself, not an answer of the server. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly code: string;
  readonly exitCode: number;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: keyof typeof EXIT_OF,
    message: string,
    more: {
      readonly hint?: string;
      readonly details?: Readonly<Record<string, unknown>>;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.exitCode = EXIT_OF[code];
    this.hint = more.hint;
    this.details = more.details;
  }
}

const EXIT_OF = {
  INVALID_ARGUMENT: EXIT.invalid,
  NOT_FOUND: EXIT.notFound,
  NETWORK_ERROR: EXIT.api,
  FILE_ERROR: EXIT.file,
  CANCELLED: EXIT.cancelled,
  CHECK_FAILED: EXIT.general,
  BUILD_FAILED: EXIT.buildFailed,
} as const;

export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly exitCode: number;
  readonly hint?: string | undefined;
  readonly requestId?: string | undefined;
  readonly details?: Readonly<Record<string, unknown>> | undefined;
}

/** Imports its dependencies lazily, so that a successful command does not load them. */
export async function failureOf(thrown: unknown): Promise<Failure> {
  if (thrown instanceof CliError) {
    const { code, message, exitCode, hint, details } = thrown;
    return { code, message, exitCode, hint, details };
  }
  const { ApiError, TorporError, isTransportFault } = await import('@torpor/sdk');
  if (thrown instanceof ApiError) return apiFailure(thrown);
  if (thrown instanceof TorporError) return localFailure(thrown);
  if (isTransportFault(thrown)) {
    return {
      code: 'NETWORK_ERROR',
      message: `The connection failed: ${reasonOf(thrown)}.`,
      exitCode: EXIT.api,
    };
  }
  if (isFileError(thrown)) {
    return {
      code: 'FILE_ERROR',
      message: thrown.message,
      exitCode: EXIT.file,
      details: { errno: thrown.code },
    };
  }
  const message = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return { code: 'GENERAL_ERROR', message, exitCode: EXIT.general };
}

type ApiErrorLike = InstanceType<typeof import('@torpor/sdk')['ApiError']>;
type TorporErrorLike = InstanceType<typeof import('@torpor/sdk')['TorporError']>;

async function apiFailure(error: ApiErrorLike): Promise<Failure> {
  const { status, code, requestId, sandboxId, operationId, checkpointId, retryable } = error;
  const details = {
    tag: 'APIErrorResponse',
    status,
    code,
    sessionId: requestId,
    retryable,
    ...withoutUndefined({ sandboxId, operationId, checkpointId }),
    ...(error.details === undefined ? {} : { fields: error.details }),
  };
  return {
    code: 'API_ERROR',
    message: error.message,
    exitCode: await exitOf(error),
    hint: code === 'unauthenticated' ? KEY_HINT : error.hint,
    requestId: requestId ?? undefined,
    details,
  };
}

/** Replaces the server's hint, which is about HTTP headers. */
const KEY_HINT =
  'Set TORPOR_API_KEY. On the machine of the server, the key is read from its data directory (--data-dir).';

/** An error of this process, for example of the server that `torpor up` runs. */
async function localFailure(error: TorporErrorLike): Promise<Failure> {
  const { code, message, hint } = error;
  return { code: code.toUpperCase(), message, exitCode: await exitOf(error), hint };
}

async function exitOf({ code }: TorporErrorLike): Promise<number> {
  const { factsOf } = await import('@torpor/protocol');
  return factsOf(code).exit;
}

function isFileError(thrown: unknown): thrown is NodeJS.ErrnoException {
  return thrown instanceof Error && 'syscall' in thrown && 'path' in thrown;
}

function reasonOf(thrown: unknown): string {
  const cause = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  return cause instanceof Error ? cause.message : String(cause);
}

export function failureJson({ code, message, exitCode, hint, details }: Failure): string {
  return JSON.stringify({ error: { code, message, exitCode, ...withoutUndefined({ hint, details }) } });
}

export function failureText({ message, hint, requestId }: Failure, colors: Colors): string {
  const lines = [`${colors.red('error:')} ${message}`];
  if (hint !== undefined) lines.push(`${colors.yellow(' hint:')} ${hint}`);
  if (requestId !== undefined) lines.push(colors.dim(`       request ${requestId}`));
  return lines.join('\n');
}
