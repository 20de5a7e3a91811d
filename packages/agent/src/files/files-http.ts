/** The contents of files over plain HTTP: GET and POST /files, POST /files/compose. */
import { basename } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { fromJson } from '@bufbuild/protobuf';
import { type ComposeRequest, ComposeRequestSchema } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { answerJson, parseJson, queryOf, type Request, type Response } from '../http/answers.ts';
import { compose } from './compose.ts';
import { download } from './download.ts';
import { type FileMetadata, type Metadata, metadataOfHeaders } from './file-metadata.ts';
import { readForm } from './multipart.ts';
import type { FileContext, Paths, Place } from './paths.ts';
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

export async function takeFiles(
  parts: FilesParts,
  context: FileContext,
  request: Request,
  response: Response,
) {
  const type = String(request.headers['content-type'] ?? '');
  const written = type.startsWith('multipart/')
    ? await takeForm(parts, context, request)
    : await takeBody(parts, context, request, type);
  answerJson(response, 200, written);
}

export async function composeFiles(
  parts: FilesParts,
  context: FileContext,
  body: Buffer,
  response: Response,
): Promise<void> {
  const order = parseCompose(body);
  const destination = await parts.paths.target(order.destination, context);
  const sources = await Promise.all(order.sourcePaths.map((path) => parts.paths.target(path, context)));
  await compose(sources, destination, context.owner, parts);
  for (const source of sources) await parts.metadata.moved(source.real, undefined);
  answerJson(response, 200, describeWritten(destination, {}));
}

export function parseCompose(body: Buffer): ComposeRequest {
  try {
    return fromJson(ComposeRequestSchema, parseJson(body) as never, { ignoreUnknownFields: true });
  } catch (cause) {
    throw new TorporError('invalid_request', 'The body must have "source_paths" and "destination".', {
      cause,
    });
  }
}

async function takeBody(parts: FilesParts, context: FileContext, request: Request, type: string) {
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
      content: decoded(request),
      expectedBytes: isPlain ? length : undefined,
      checkComplete: () => refuseBrokenOff(request),
    },
    parts,
  );
  return [await recorded(parts, place, metadata)];
}

async function takeForm(parts: FilesParts, context: FileContext, request: Request) {
  const metadata = metadataOfHeaders(request.headers);
  const path = queryOf(request).get('path');
  const written = new Map<string, Awaited<ReturnType<typeof recorded>>>();
  const headers = { ...request.headers, 'content-type': String(request.headers['content-type']) };
  await readForm(decoded(request), headers, async ({ name, content }) => {
    if (!(path || name)) {
      throw new TorporError('invalid_request', 'Name the file in its part of the form or in the query.');
    }
    const place = await parts.paths.target(path || name, context);
    if (written.has(place.real)) {
      throw new TorporError(
        'invalid_request',
        `${place.path} stands in the form twice; the first was written.`,
      );
    }
    await receive({ place, owner: context.owner, content }, parts);
    written.set(place.real, await recorded(parts, place, metadata));
  });
  if (written.size === 0) throw new TorporError('invalid_request', 'The form has no part named "file".');
  return [...written.values()];
}

async function recorded({ metadata: store }: FilesParts, place: Place, metadata: Metadata) {
  await store.set(place.real, metadata);
  return describeWritten(place, metadata);
}

function describeWritten(place: Place, metadata: Metadata) {
  return {
    path: place.path,
    name: basename(place.path),
    type: 'file',
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
  };
}

/**
 * The body as the file it stands for. A failure while it is written must not destroy the request, which
 * would take the connection along before the failure could be told.
 */
function decoded(request: Request): Readable {
  const body = Readable.from(request.iterator({ destroyOnReturn: false }), { objectMode: false });
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return body;
  if (encoding !== 'gzip') {
    throw new TorporError('invalid_request', `The encoding ${encoding} is not known here; use gzip.`);
  }
  return pipeline(body, createGunzip(), () => {});
}

/** HTTP/2 ends the body of a request that was given up as if it had been sent. */
function refuseBrokenOff(request: Request): void {
  if (!request.complete || request.aborted) {
    throw new TorporError('invalid_request', 'The upload was broken off.');
  }
}
