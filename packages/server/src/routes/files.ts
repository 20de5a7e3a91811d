/** Files of a sandbox, read and written through its agent. The agent checks the paths. */
import type { IncomingMessage } from 'node:http';
import { type AgentClient, asUser, type EntryInfo, FileType } from '@torpor/envd';
import {
  directoryListingSchema,
  type FileEntry,
  type SandboxId,
  userNameSchema,
  wakeQuerySchema,
  writtenFileSchema,
} from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { FILE_HEADERS } from '../http/file-headers.ts';
import { onResponseClosed } from '../http/on-response-closed.ts';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { withStallTimeout } from '../http/stall-timeout.ts';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { connectToSandbox, withAgent } from '../sandbox/sandbox-connection.ts';

const filesQuery = z.strictObject({
  path: z.string().min(1).max(4_096).meta({ description: 'Absolute, or relative to the home directory.' }),
  user: userNameSchema.optional(),
});
const readQuery = filesQuery.extend({ wake: wakeQuerySchema });
type FilesQuery = z.infer<typeof filesQuery>;

const failures = errors(
  'not_found',
  'forbidden',
  'transitioning',
  'conflict',
  'killed',
  'lost',
  'storage_full',
  'idempotency_mismatch',
);
const bytes = { 'application/octet-stream': { schema: z.string().meta({ format: 'binary' }) } };

export function fileRoutes(app: RoutesApp, ctx: RouteContext): void {
  const config = { deadline: 'lifecycle' } as const;
  const tags = ['files'];

  app.get(
    '/v1/sandboxes/:id/files',
    {
      config,
      exposeHeadRoute: false,
      schema: {
        operationId: 'readFile',
        summary: 'The bytes of a file, or the entries of a directory',
        description: 'A paused sandbox is woken first, unless its `autoResume` is off or `wake` is `false`.',
        tags,
        params: sandboxParams,
        querystring: readQuery,
        response: {
          200: {
            description: 'The bytes of a file, or a directory as JSON.',
            content: { 'application/json': { schema: directoryListingSchema }, ...bytes },
          },
          ...failures,
        },
      },
    },
    async (request, reply) => read(ctx, request, reply, request.params.id, request.query),
  );

  // The body is the file, whatever its content type is.
  app.register(async (raw: RoutesApp) => {
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser('*', (_request, _payload, done) => done(null, {}));
    raw.put(
      '/v1/sandboxes/:id/files',
      {
        config,
        schema: {
          operationId: 'writeFile',
          summary: 'Write a file and create its parent directories',
          description: 'The body is the file. A concurrent reader sees the old file or the new one.',
          tags,
          params: sandboxParams,
          querystring: filesQuery,
          response: { 200: json('The file is written.', writtenFileSchema), ...failures },
        },
      },
      async (request) => write(ctx, request, request.params.id, request.query),
    );
  });

  app.delete(
    '/v1/sandboxes/:id/files',
    {
      config,
      schema: {
        operationId: 'removeFile',
        summary: 'Remove a file, or a directory with its contents',
        tags,
        params: sandboxParams,
        querystring: filesQuery,
        response: { 204: z.null().meta({ description: 'It is removed.' }), ...failures },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { path } = request.query;
      await request.deadline.run(() =>
        ctx.replays.once(request, `${id} ${path}`, async () => {
          await withAgent(ctx, request, id, (agent, signal) =>
            agent.filesystem.remove({ path }, callFor(request.query, signal)),
          );
          return { body: null };
        }),
      );
      return reply.code(204).send(null);
    },
  );
}

function callFor({ user }: FilesQuery, signal: AbortSignal) {
  return { signal, ...(user === undefined ? {} : { headers: asUser(user) }) };
}

async function read(
  ctx: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  id: SandboxId,
  query: z.infer<typeof readQuery>,
) {
  const { clock, settings } = ctx;
  const wake = query.wake === 'true' && !request.identity.readOnly;
  const connection = await connectToSandbox(ctx, request, id, { wake });
  try {
    const found = await request.deadline.run((signal) => open(connection.agent, query, signal));
    if (found.file === undefined) {
      connection.release();
      return found.listing;
    }
    request.deadline.release();
    onResponseClosed(reply, () => connection.release());
    const length = found.file.headers['content-length'];
    if (length !== undefined) reply.header('content-length', length);
    return reply.headers(FILE_HEADERS).send(withStallTimeout(found.file, clock, settings.stallMs));
  } catch (thrown) {
    connection.release();
    throw fromAgentError(thrown, id);
  }
}

async function open(agent: AgentClient, query: FilesQuery, signal: AbortSignal) {
  const { path, user } = query;
  const { entry } = await agent.filesystem.stat({ path }, callFor(query, signal));
  if (entry?.type !== FileType.DIRECTORY) {
    return { file: (await agent.files.read(path, { user, signal })) as IncomingMessage };
  }
  const { entries } = await agent.filesystem.listDir({ path, depth: 1 }, callFor(query, signal));
  return { listing: { path: entry.path, entries: entries.map(viewEntry) } };
}

async function write(ctx: RouteContext, request: FastifyRequest, id: SandboxId, query: FilesQuery) {
  const { clock, settings } = ctx;
  const { path, user } = query;
  const connection = await connectToSandbox(ctx, request, id);
  request.deadline.release();
  const { signal } = request.deadline;
  try {
    return await connection.agent.files.write(path, withStallTimeout(request.raw, clock, settings.stallMs), {
      user,
      signal,
    });
  } catch (thrown) {
    throw fromAgentError(thrown, id);
  } finally {
    connection.release();
  }
}

const TYPES: Readonly<Record<FileType, FileEntry['type']>> = {
  [FileType.UNSPECIFIED]: 'other',
  [FileType.FILE]: 'file',
  [FileType.DIRECTORY]: 'directory',
  [FileType.SYMLINK]: 'symlink',
};

function viewEntry(entry: EntryInfo): FileEntry {
  const { name, path, type, size, mode, owner, group, modifiedTime, symlinkTarget = null } = entry;
  return {
    name,
    path,
    type: TYPES[type] ?? 'other',
    size: Number(size),
    mode,
    owner,
    group,
    modifiedAt:
      modifiedTime === undefined
        ? null
        : Number(modifiedTime.seconds) * 1_000 + Math.floor(modifiedTime.nanos / 1e6),
    symlinkTarget,
  };
}
