/** GET /files: the bytes of one file, whole, in part, or compressed. */
import { constants as openFlags } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip } from 'node:zlib';
import { TorporError } from '@torpor/protocol';
import { answerJson, type Request, type Response } from '../http/answers.ts';
import { parseRange } from './byte-range.ts';
import { withFileErrors } from './file-errors.ts';
import type { ResolvedPath } from './paths.ts';

const CHUNK_BYTES = 64 * 1024;

export async function download(place: ResolvedPath, request: Request, response: Response): Promise<void> {
  const file = await withFileErrors(place.path, () => openRegular(place));
  try {
    const { size, mtime } = await file.stat();
    response.setHeader('content-type', 'application/octet-stream');
    response.setHeader('content-disposition', disposition(place.path));
    response.setHeader('last-modified', mtime.toUTCString());
    // A browser must not guess that a file of the sandbox is a page of the site that serves it.
    response.setHeader('x-content-type-options', 'nosniff');
    if (size === 0) return await sendUnsized(file, response);
    const range =
      request.headers['if-range'] === undefined ? parseRange(request.headers.range, size) : undefined;
    if (range === 'unsatisfiable') {
      response.setHeader('content-range', `bytes */${size}`);
      answerJson(response, 416, { code: 416, message: `The file has only ${size} bytes.` });
      return;
    }
    if (range === undefined && wantsGzip(request)) return await sendCompressed(file, response);
    await sendPart(file, response, size, range);
  } finally {
    await file.close();
  }
}

async function openRegular(place: ResolvedPath): Promise<FileHandle> {
  // Without O_NONBLOCK, opening a FIFO waits until another process opens its other end.
  const file = await open(place.real, openFlags.O_RDONLY | openFlags.O_NONBLOCK);
  const found = await file.stat();
  if (found.isFile()) return file;
  await file.close();
  throw new TorporError('invalid_request', `${place.path} is not a regular file.`);
}

/** Files in /proc report size 0 although they have content, so only reading shows whether a file is empty. */
async function sendUnsized(file: FileHandle, response: Response): Promise<void> {
  const first = await file.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES);
  if (first.bytesRead === 0) {
    response.writeHead(200, { 'content-length': 0 });
    response.end();
    return;
  }
  const rest = async function* () {
    yield first.buffer.subarray(0, first.bytesRead);
    for (;;) {
      const next = await file.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES);
      if (next.bytesRead === 0) return;
      yield next.buffer.subarray(0, next.bytesRead);
    }
  };
  await pipeline(Readable.from(rest()), response);
}

async function sendCompressed(file: FileHandle, response: Response): Promise<void> {
  response.writeHead(200, { 'content-encoding': 'gzip', vary: 'accept-encoding' });
  const gzip = createGzip({ level: constants.Z_BEST_SPEED });
  await pipeline(file.createReadStream({ autoClose: false }), gzip, response);
}

async function sendPart(
  file: FileHandle,
  response: Response,
  size: number,
  range: { start: number; end: number } | undefined,
): Promise<void> {
  const { start, end } = range ?? { start: 0, end: size - 1 };
  response.setHeader('accept-ranges', 'bytes');
  response.setHeader('content-length', end - start + 1);
  if (range !== undefined) response.setHeader('content-range', `bytes ${start}-${end}/${size}`);
  response.writeHead(range === undefined ? 200 : 206);
  const bytes = file.createReadStream({ start, end, autoClose: false });
  await pipeline(bytes, response, { end: false });
  // The file shrank meanwhile. Breaking off the answer tells the client that it is incomplete.
  if (bytes.bytesRead < end - start + 1) response.destroy();
  else response.end();
}

/**
 * True only for clients that accept nothing but gzip. Every `fetch` lists gzip among others by default, and on a
 * local network compression costs more than it saves.
 */
function wantsGzip(request: Request): boolean {
  return String(request.headers['accept-encoding'] ?? '').trim() === 'gzip';
}

function disposition(path: string): string {
  const name = encodeURIComponent(basename(path).toWellFormed());
  return `inline; filename*=UTF-8''${name.replace(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`)}`;
}
