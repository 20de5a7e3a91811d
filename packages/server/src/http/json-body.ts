/** Reads JSON bodies with limits on size and time, and refuses values that a database or a process cannot take. */

import { TorporError } from '@torpor/protocol';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { HttpRefusal } from './error-answer.ts';

/** Deeper than any valid request, and shallow enough for recursive code. */
const MAX_DEPTH = 32;

/** Bodies as they came, for requests that are passed on to another node after they were read. */
const texts = new WeakMap<FastifyRequest, string>();

export function jsonTextOf(request: FastifyRequest): string {
  return texts.get(request) ?? '';
}

/** Accepts only JSON bodies; other types get 415. An empty body counts as `{}`. */
export function acceptJson(app: FastifyInstance, maxBytes: number): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    'application/json',
    async (request: FastifyRequest, payload: AsyncIterable<Buffer>) => {
      const text = (await readBounded(request, payload, maxBytes)).toString('utf8');
      texts.set(request, text);
      return text.trim() === '' ? undefined : parseJson(text);
    },
  );
  app.addHook('preParsing', async (request, reply) => {
    const encoding = request.headers['content-encoding'] ?? 'identity';
    if (encoding.toLowerCase() === 'identity') return;
    reply.header('accept-encoding', 'identity');
    throw new HttpRefusal(
      415,
      `The Content-Encoding ${encoding} is not supported.`,
      'Send the body uncompressed, without Content-Encoding.',
    );
  });
  app.addHook('preValidation', async (request) => {
    if (request.body === undefined || request.body === null) request.body = {};
    refuseUnwritable(request.query);
    refuseUnwritable(request.params);
  });
}

async function readBounded(
  request: FastifyRequest,
  payload: AsyncIterable<Buffer>,
  maxBytes: number,
): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  return request.deadline.run(async () => {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of payload) {
      size += chunk.length;
      if (size > maxBytes) throw tooLarge(maxBytes);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  });
}

function tooLarge(maxBytes: number): TorporError {
  return new HttpRefusal(
    413,
    `The body has more than ${maxBytes} bytes.`,
    'Send large contents with PUT …/files.',
  );
}

/** Throws `invalid_request` for text that is not JSON or has unsafe values. */
export function parseJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    refuseUnsafe(value);
    return value;
  } catch (thrown) {
    if (thrown instanceof TorporError) throw thrown;
    throw new TorporError('invalid_request', 'The body is not JSON.', { cause: thrown });
  }
}

/**
 * Refuses NUL and lone surrogates, which neither PostgreSQL texts nor process arguments can hold, the key `__proto__`,
 * and too deep nesting. It is not recursive, because the caller controls the depth until it is checked.
 */
function refuseUnsafe(root: unknown): void {
  const left: { value: unknown; depth: number }[] = [{ value: root, depth: 0 }];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { value, depth } = next;
    refuseUnwritable(value);
    if (typeof value !== 'object' || value === null) continue;
    if (depth >= MAX_DEPTH) throw new TorporError('invalid_request', 'The body is nested too deeply.');
    for (const [key, inner] of Object.entries(value)) {
      if (key === '__proto__') throw new TorporError('invalid_request', 'The body has a key "__proto__".');
      refuseUnwritable(key);
      left.push({ value: inner, depth: depth + 1 });
    }
  }
}

/** Checks a text, or all texts of a query or of path parameters. */
function refuseUnwritable(value: unknown): void {
  const texts =
    typeof value === 'string' ? [value] : typeof value === 'object' && value !== null ? entriesOf(value) : [];
  if (texts.some((text) => text.includes('\u0000'))) {
    throw new TorporError('invalid_request', 'The request has a NUL character in a text.');
  }
  if (!texts.every((text) => text.isWellFormed())) {
    throw new TorporError(
      'invalid_request',
      'The request has half a character (a lone surrogate) in a text.',
    );
  }
}

function entriesOf(value: object): string[] {
  return Object.entries(value)
    .flat(2)
    .filter((part): part is string => typeof part === 'string');
}
