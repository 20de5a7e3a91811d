/** Pieces of the routes' schemas: ids in paths, pages, and error responses. */
import {
  type ErrorCode,
  errorReplySchema,
  factsOf,
  idSchema,
  parseSandboxId,
  type SandboxId,
} from '@torpor/protocol';
import { z } from 'zod';

/** `sbx_…`, or the id without this prefix. */
export const sandboxIdParam = z
  .string()
  .regex(/^(?:sbx_)?[a-z0-9]{20}$/)
  .transform((text) => parseSandboxId(text) as SandboxId)
  .meta({ description: "A sandbox's id, with or without the prefix sbx_." });

export const sandboxParams = z.object({ id: sandboxIdParam });
export const checkpointParams = z.object({ id: idSchema('ckpt') });
export const operationParams = z.object({ id: idSchema('op') });

const MAX_PAGE = 1_000;

export const limitQuery = z.coerce.number().int().min(1).max(MAX_PAGE).default(100);

/** For lists whose `nextCursor` is an id with this prefix. An empty cursor is the first page. */
export function pageQuery(prefix: 'sbx' | 'ses' | 'key' | 'hook') {
  return { limit: limitQuery, cursor: cursorLike(new RegExp(`^(?:${prefix}_[a-z0-9]{20})?$`)) };
}

/** For lists whose `nextCursor` is a name. */
export const namedPageQuery = { limit: limitQuery, cursor: cursorLike(/^[A-Za-z0-9_]{0,128}$/) };

/** A number in a query or a header. */
export const numberText = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform(Number);

/** For lists whose items are numbered in order. The cursor is the number of the last item. */
export const numberedPageQuery = z.strictObject({ limit: limitQuery, cursor: numberText.optional() });

/** For lists without pages. They never return a cursor. */
export const unpagedQuery = { limit: limitQuery, cursor: cursorLike(/^$/) };

function cursorLike(form: RegExp) {
  return z.string().regex(form, 'is not a nextCursor of this list').optional();
}

/** Errors that any route may answer. */
const ANY: readonly ErrorCode[] = [
  'invalid_request',
  'unauthenticated',
  'forbidden',
  'unreachable',
  'timeout',
  'internal',
];

interface Answer {
  readonly description: string;
  readonly content: Readonly<Record<string, { readonly schema: z.ZodType }>>;
}

/** The errors that a route may answer: each status with its error codes. */
export function errors(...codes: ErrorCode[]): Record<number, Answer> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of new Set([...ANY, ...codes])) {
    const { http } = factsOf(code);
    byStatus.set(http, [...(byStatus.get(http) ?? []), code]);
  }
  const answers = [...byStatus].map(([status, some]) => {
    const description = some.map((code) => `\`${code}\`: ${factsOf(code).hint}`).join('\n');
    return [status, { description, content: { 'application/json': { schema: errorReplySchema } } }];
  });
  return Object.fromEntries(answers) as Record<number, Answer>;
}

export function json(description: string, schema: z.ZodType): Answer {
  return { description, content: { 'application/json': { schema } } };
}
