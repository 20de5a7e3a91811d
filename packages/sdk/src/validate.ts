/** Checks that an answer is what was asked for, before anybody relies on it (R62). */
import { type Answered, InternalError } from './errors.ts';

/** As much of a schema as is needed here. */
export interface Schema<T> {
  safeParse(
    value: unknown,
  ): { success: true; data: T } | { success: false; error: { issues: readonly Issue[] } };
}

interface Issue {
  readonly code?: string | undefined;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** Of a union: what each of its forms has against the value. */
  readonly errors?: readonly (readonly Issue[])[] | undefined;
}

export function answeredBy(response: Response): Answered {
  return { status: response.status, requestId: response.headers.get('x-request-id') };
}

export async function validated<T>(response: Response, schema: Schema<T>): Promise<T> {
  return checked(await response.text(), schema, answeredBy(response));
}

/**
 * JSON as `T`. Fields and words of a newer server are let through, because what is on the wire may grow;
 * a field that is missing or of another kind is not.
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
  const wrong = result.success ? [] : result.error.issues.filter((issue) => !isNewWord(issue, json));
  if (wrong.length === 0) return json as T;
  const fields = wrong.map((issue) => `${issue.path.map(String).join('.')}: ${issue.message}`);
  throw new InternalError(
    "The server's answer has not the form it should have.",
    { details: { fields } },
    about,
  );
}

/** Whether all that is wrong is a word that is not in the closed set this version knows. */
function isNewWord(issue: Issue, root: unknown): boolean {
  const value = issue.path.reduce<unknown>(
    (at, key) => (at as Record<PropertyKey, unknown> | null)?.[key],
    root,
  );
  if (issue.code === 'invalid_value') return typeof value === 'string';
  return issue.errors?.some((form) => form.length > 0 && form.every((one) => isNewWord(one, value))) ?? false;
}
