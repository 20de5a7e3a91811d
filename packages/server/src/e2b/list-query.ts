/** The query parameters of E2B's lists: filters, order and page tokens. */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

const limitSchema = z.coerce.number().int().min(1).max(100).default(100);
const tokenSchema = z.string().max(200).optional();

const statesSchema = z
  .union([z.string(), z.array(z.string())])
  .transform((given) => [given].flat().flatMap((text) => text.split(',')))
  .pipe(z.array(z.enum(['running', 'paused'])).max(16));

export const sandboxesQuery = z.object({
  metadata: z.string().max(8_192).optional(),
  state: statesSchema.optional(),
  order: z.enum(['asc', 'desc']).default('desc'),
  startedAfter: z.coerce.date().optional(),
  template: z.string().max(200).optional(),
  limit: limitSchema,
  nextToken: tokenSchema,
});

export const snapshotsQuery = z.object({
  sandboxID: z.string().max(100).optional(),
  name: z.string().max(200).optional(),
  limit: limitSchema,
  nextToken: tokenSchema,
});

/** E2B's clients encode keys and values, and then the whole text once more. */
export function parseMetadataFilter(text: string | undefined): Record<string, string> {
  const pairs = [...new URLSearchParams(text ?? '')];
  try {
    return Object.fromEntries(pairs.map((pair) => pair.map((part) => decodeURIComponent(part))));
  } catch (cause) {
    throw new TorporError('invalid_request', 'The metadata filter is not encoded correctly.', { cause });
  }
}

interface PageToken {
  readonly at: number;
  readonly id: string;
}

export function formatToken({ at, id }: PageToken): string {
  return Buffer.from(`${at}__${id}`).toString('base64url');
}

export function parseToken(token: string | undefined): PageToken | undefined {
  if (!token) return undefined;
  const [, at, id = ''] =
    /^(\d{1,15})__([a-z]+_[a-z0-9]{20})$/.exec(Buffer.from(token, 'base64url').toString()) ?? [];
  if (at === undefined) {
    throw new TorporError('invalid_request', 'The nextToken does not belong to this list.');
  }
  return { at: Number(at), id };
}
