/** The OpenAPI document's components, generated from the same schemas that validate requests. */
import { z } from 'zod';

/** JSON Schema 2020-12, the dialect of OpenAPI 3.1, of any schema in this package. */
export function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): Record<string, unknown> {
  return z.toJSONSchema(schema, { target: 'draft-2020-12', io, unrepresentable: 'any' }) as Record<
    string,
    unknown
  >;
}
