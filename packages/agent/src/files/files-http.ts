/** File contents over plain HTTP: GET and POST /files, POST /files/compose. */
import { createReadStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { fromJson } from '@bufbuild/protobuf';
import { type ComposeRequest, ComposeRequestSchema } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { answerJson, parseJson, queryOf, type Request, type Response } from '../http/answers.ts';
import { download } from './download.ts';
import { withFileErrors } from './file-errors.ts';
import { type FileMetadata, type Metadata, metadataOfHeaders } from './file-metadata.ts';
import { readForm } from './multipart.ts';
import type { Owner } from './ownership.ts';
import type { FileContext, Paths, ResolvedPath } from './paths.ts';
import { receive, type UploadParts } from './upload.ts';

export interface FilesParts extends UploadParts {
  readonly paths: Paths;
  readonly metadata: FileMetadata;
}

export async function serveFile(
  parts: FilesParts,
  context: FileContext,
  request: Request,
  response: Response,
) {
  const path = queryOf(request).get('path') ?? '';
  await download(await parts.paths.target(path, context), request, response);
}

export async function receiveFiles(
  parts: FilesParts,
  context: FileContext,
  request: Request,
  response: Response,
) {
  const type = String(request.headers['content-type'] ?? '');
  const written = type.startsWith('multipart/')
    ? await receiveForm(parts, context, request)
    : await receiveBody(parts, context, request, type);
  answerJson(response, 200, written);
}

export async function composeFiles(
  parts: FilesParts,
  context: FileContext,
  body: Buffer,
  response: Response,
): Promise<void> {
  const request = parseCompose(body);
  const destination = await parts.paths.target(request.destination, context);
  const sources = await Promise.all(request.sourcePaths.map((path) => parts.paths.target(path, context)));
  await compose(sources, destination, context.owner, parts);
  for (const source of sources) await parts.metadata.moved(source.real, undefined);
  answerJson(response, 200, describeWritten(destination, {}));
}

export function parseCompose(body: Buffer): ComposeRequest {
  try {
    return fromJson(ComposeRequestSchema, parseJson(body), { ignoreUnknownFields: true });
  } catch (cause) {
    throw new TorporError('invalid_request', 'The body must have "source_paths" and "destination".', {
      cause,
    });
  }
}

/** Writes one file out of several and removes these. */
async function compose(
  sources: readonly ResolvedPath[],
  destination: ResolvedPath,
  owner: Owner | undefined,
  parts: UploadParts,
): Promise<void> {
  if (sources.length === 0) throw new TorporError('invalid_request', 'There is nothing to compose.');
  for (const source of sources) {
    const found = await withFileErrors(source.path, () => stat(source.real));
    if (!found.isFile()) throw new TorporError('invalid_request', `${source.path} is not a regular file.`);
  }
  await receive({ place: destination, owner, content: Readable.from(readAll(sources)) }, parts);
  const used = sources.filter(({ real }) => real !== destination.real);
  const change = await parts.watches.begin(used.map(({ real }) => real));
  try {
    for (const { path, real } of used) await withFileErrors(path, () => rm(real, { force: true }));
  } finally {
    await change.reported();
  }
}

async function* readAll(sources: readonly ResolvedPath[]): AsyncGenerator<Buffer> {
  for (const source of sources) yield* createReadStream(source.real) as AsyncIterable<Buffer>;
}

async function receiveBody(parts: FilesParts, context: FileContext, request: Request, type: string) {
  if (type.split(';')[0]?.trim() !== 'application/octet-stream') {
    throw new TorporError(
      'invalid_request',
      'Send the file as application/octet-stream or multipart/form-data.',
    );
  }
  const path = queryOf(request).get('path');
  if (!path) throw new TorporError('invalid_request', 'The query parameter "path" is missing.');
  const metadata = metadataOfHeaders(request.headers);
  const place = await parts.paths.target(path, context);
  const length = Number(request.headers['content-length']);
  const isPlain = request.headers['content-encoding'] === undefined && Number.isInteger(length);
  await receive(
    {
      place,
      owner: context.owner,
      content: decodedBody(request),
      expectedBytes: isPlain ? length : undefined,
      checkComplete: () => refuseBrokenOff(request),
    },
    parts,
  );
  return [await saveMetadata(parts, place, metadata)];
}

async function receiveForm(parts: FilesParts, context: FileContext, request: Request) {
  const metadata = metadataOfHeaders(request.headers);
  const path = queryOf(request).get('path');
  const written = new Map<string, Awaited<ReturnType<typeof saveMetadata>>>();
  const headers = { ...request.headers, 'content-type': String(request.headers['content-type']) };
  await readForm(decodedBody(request), headers, async ({ name, content }) => {
    if (!(path || name)) {
      throw new TorporError('invalid_request', 'Name the file in its part of the form or in the query.');
    }
    const place = await parts.paths.target(path || name, context);
    if (written.has(place.real)) {
      throw new TorporError(
        'invalid_request',
        `${place.path} is in the form twice; the first part was written.`,
      );
    }
    await receive({ place, owner: context.owner, content }, parts);
    written.set(place.real, await saveMetadata(parts, place, metadata));
  });
  if (written.size === 0) throw new TorporError('invalid_request', 'The form has no part named "file".');
  return [...written.values()];
}

async function saveMetadata({ metadata: store }: FilesParts, place: ResolvedPath, metadata: Metadata) {
  await store.set(place.real, metadata);
  return describeWritten(place, metadata);
}

function describeWritten(place: ResolvedPath, metadata: Metadata) {
  return {
    path: place.path,
    name: basename(place.path),
    type: 'file',
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
  };
}

/**
 * The body of the request, uncompressed. A failure while the file is written must not destroy the request: that would
 * close the connection before the error is sent.
 */
function decodedBody(request: Request): Readable {
  const body = Readable.from(request.iterator({ destroyOnReturn: false }), { objectMode: false });
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return body;
  if (encoding !== 'gzip') {
    throw new TorporError('invalid_request', `The encoding ${encoding} is not supported; use gzip.`);
  }
  return pipeline(body, createGunzip(), () => {});
}

/** In HTTP/2 the body of an aborted request ends as if it were complete. */
function refuseBrokenOff(request: Request): void {
  if (!request.complete || request.aborted) {
    throw new TorporError('invalid_request', 'The upload was broken off.');
  }
}
