/** Checks every response against its schema before the caller gets it (R62). */
import { type Answered, InternalError } from './errors.ts';

/** The part of a zod schema that this file uses. */
export interface Schema<T> {
  safeParse(
    value: unknown,
  ): { success: true; data: T } | { success: false; error: { issues: readonly Issue[] } };
}

interface Issue {
  readonly code?: string | undefined;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** For a union: the issues of each of its variants. */
  readonly errors?: readonly (readonly Issue[])[] | undefined;
}

export function answeredBy(response: Response): Answered {
  return { status: response.status, requestId: response.headers.get('x-request-id') };
}

export async function validated<T>(response: Response, schema: Schema<T>): Promise<T> {
  return checked(await response.text(), schema, answeredBy(response));
}

/**
 * Parses JSON as `T`. Additional fields and unknown enum values of a newer server are accepted, because the protocol may
 * grow. A missing field or a field of another type is an error.
 */
export function checked<T>(text: string, schema: Schema<T>, about: Answered): T {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new InternalError(
      `The server's answer is ${text === '' ? 'empty' : 'not JSON'}.`,
      { cause },
      about,
    );
  }
  const result = schema.safeParse(json);
  const wrong = result.success ? [] : result.error.issues.filter((issue) => !isUnknownEnumValue(issue, json));
  if (wrong.length === 0) return json as T;
  const fields = wrong.map((issue) => `${issue.path.map(String).join('.')}: ${issue.message}`);
  throw new InternalError("The server's answer does not match its schema.", { details: { fields } }, about);
}

/** Whether the only issue is an enum value that this version does not know. */
function isUnknownEnumValue(issue: Issue, root: unknown): boolean {
  const value = issue.path.reduce<unknown>(
    (at, key) => (at as Record<PropertyKey, unknown> | null)?.[key],
    root,
  );
  if (issue.code === 'invalid_value') return typeof value === 'string';
  return (
    issue.errors?.some((form) => form.length > 0 && form.every((one) => isUnknownEnumValue(one, value))) ??
    false
  );
}
