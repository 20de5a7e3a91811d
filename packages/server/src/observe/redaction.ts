/** Keeps secrets out of the log (R114): by the names of fields, and by patterns of secrets. */
import { TorporError } from '@torpor/protocol';

const HIDDEN = '[hidden]';
const SECRET_NAMES =
  /^(?:authorization|cookie|set-cookie|x-api-key|x-access-token|torpor-credential|api-?key|key|token|access-?token|credential|secret|password|signature|stdin)$/i;
/** Objects whose values belong to the user and are not shown. */
const PRIVATE_NAMES = /^envs?$/i;

/** Keys (digests look the same and are hidden too), `Bearer …`, signatures in URLs, passwords in URLs. */
const SECRET_FORMS: readonly (readonly [RegExp, string])[] = [
  [/\b(?:e2b_)?[0-9a-f]{64}\b/gi, HIDDEN],
  [/\b(Bearer|Basic) +[A-Za-z0-9._~+/=-]+/gi, `$1 ${HIDDEN}`],
  [/([?&](?:signature|token|access_token|key|api_key)=)[^&\s"'\\]+/gi, `$1${HIDDEN}`],
  [/(\b[a-z][a-z0-9+.-]*:\/\/[^:/?#\s"'\\]*:)[^@/?#\s"'\\]+@/gi, `$1${HIDDEN}@`],
];

/** The last check, applied to the finished log line. */
export function hideSecrets(text: string): string {
  let hidden = text;
  for (const [form, instead] of SECRET_FORMS) hidden = hidden.replace(form, instead);
  return hidden;
}

const MAX_DEPTH = 6;

/** Converts log fields: errors include their causes, secrets are hidden, depth and length are limited. */
export function loggable(value: unknown, depth = 0): unknown {
  if (value instanceof Error) return loggableError(value, depth);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return '…';
  if (Array.isArray(value)) return value.slice(0, 50).map((item) => loggable(item, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => {
      if (SECRET_NAMES.test(name)) return [name, HIDDEN];
      if (PRIVATE_NAMES.test(name) && typeof inner === 'object' && inner !== null) {
        return [name, Object.fromEntries(Object.keys(inner).map((key) => [key, HIDDEN]))];
      }
      return [name, loggable(inner, depth + 1)];
    }),
  );
}

function loggableError(error: Error, depth: number): unknown {
  const own = error instanceof TorporError ? error.toBody() : {};
  return {
    type: error.name,
    ...(loggable(own, depth + 1) as object),
    message: error.message,
    stack: error.stack,
    ...(error.cause === undefined || depth >= MAX_DEPTH ? {} : { cause: loggable(error.cause, depth + 1) }),
  };
}
