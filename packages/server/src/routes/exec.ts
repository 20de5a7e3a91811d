/** Commands: with one answer at the end, as a stream, or in the background. */
import {
  backgroundReplySchema,
  type ExecReply,
  type ExecRequest,
  execReplySchema,
  execRequestSchema,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { onResponseClosed } from '../http/on-response-closed.ts';
import { errors, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { type Frame, sendEvents, wantsEvents } from '../http/sse.ts';
import type { RouteContext } from '../route-context.ts';
import { startInBackground } from '../sandbox/background.ts';
import { type Command, runCommand } from '../sandbox/command.ts';
import { interruptedCommandError } from '../sandbox/interrupted-command.ts';
import { BoundedOutput, OutputDecoder } from '../sandbox/output.ts';
import { connectToSandbox, type SandboxConnection } from '../sandbox/sandbox-connection.ts';

/** Output of each channel that the details of a `timeout` contain. */
const PARTIAL_BYTES = 64 * 1024;

export function execRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.post(
    '/v1/sandboxes/:id/exec',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'exec',
        summary: 'Run a command',
        description:
          'A paused sandbox is woken first, unless its `autoResume` is off. It is kept awake until the ' +
          'command has ended. When the client disconnects, the command is killed, unless it runs in the background. ' +
          'The stream has the events `start`, `stdout`, `stderr` and `end`, or `error`. `Idempotency-Key` is ' +
          'ignored.',
        tags: ['commands'],
        params: sandboxParams,
        body: execRequestSchema,
        response: {
          200: {
            description:
              'The result of the command. With `background`, the process. With `Accept: text/event-stream`, the stream.',
            content: {
              'application/json': { schema: z.union([execReplySchema, backgroundReplySchema]) },
              'text/event-stream': { schema: z.string() },
            },
          },
          ...errors(
            'not_found',
            'forbidden',
            'transitioning',
            'conflict',
            'killed',
            'lost',
            'quota_exceeded',
            'capacity',
            'checkpoint_missing',
          ),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { body } = request;
      const connection = await connectToSandbox(ctx, request, id);
      try {
        if (body.background === true) return await startInBackground(ctx, request, id, connection, body);
        if (wantsEvents(request)) return await stream(ctx, request, reply, id, connection, body);
      } catch (thrown) {
        const error = await interruptedCommandError(ctx, request.identity.org, id, connection, thrown);
        connection.release();
        throw error;
      }
      return runToEnd(ctx, request, id, connection, body).finally(() => connection.release());
    },
  );
}

function commandOf(request: FastifyRequest, wanted: ExecRequest, usualMs?: number): Command {
  const { timeoutSeconds, ...rest } = wanted;
  const timeoutMs = timeoutSeconds === undefined ? usualMs : timeoutSeconds * 1_000;
  return { ...rest, tag: request.id, timeoutMs };
}

/** Ends the command when the client disconnects or when the server is forced to stop. */
function commandSignal(ctx: RouteContext, request: FastifyRequest): AbortSignal {
  return AbortSignal.any([request.deadline.signal, ctx.forcedStop]);
}

async function runToEnd(
  ctx: RouteContext,
  request: FastifyRequest,
  id: SandboxId,
  connection: SandboxConnection,
  wanted: ExecRequest,
): Promise<ExecReply> {
  const { clock, settings } = ctx;
  // From now on the timeout of the command applies, not the deadline of the request.
  request.deadline.release();
  const began = clock.monotonic();
  const out = {
    stdout: new BoundedOutput(settings.maxOutputBytes),
    stderr: new BoundedOutput(settings.maxOutputBytes),
  };
  const command = commandOf(request, wanted, settings.execMs);
  try {
    for await (const event of runCommand(connection.agent, clock, command, commandSignal(ctx, request))) {
      if (event.is === 'stdout' || event.is === 'stderr') out[event.is].add(event.bytes);
      if (event.is !== 'end') continue;
      return {
        exitCode: event.exitCode,
        signal: event.signal,
        stdout: out.stdout.text(),
        stderr: out.stderr.text(),
        truncated: out.stdout.truncated || out.stderr.truncated,
        durationMs: Math.round(clock.monotonic() - began),
        autoResumed: connection.autoResumed,
      };
    }
    throw new TorporError('unreachable', 'The connection closed before the command ended.');
  } catch (thrown) {
    throw await failureOf(ctx, request, thrown, id, connection, {
      stdout: out.stdout.tail(PARTIAL_BYTES),
      stderr: out.stderr.tail(PARTIAL_BYTES),
      durationMs: Math.round(clock.monotonic() - began),
      autoResumed: connection.autoResumed,
    });
  }
}

async function failureOf(
  ctx: RouteContext,
  request: FastifyRequest,
  thrown: unknown,
  id: SandboxId,
  connection: SandboxConnection,
  soFar: Record<string, unknown>,
): Promise<TorporError> {
  if (ctx.forcedStop.aborted)
    return new TorporError('unreachable', 'The server is stopping and has killed the command.');
  const error = await interruptedCommandError(ctx, request.identity.org, id, connection, thrown);
  return error.code === 'timeout' ? error.with({ details: soFar }) : error;
}

async function stream(
  ctx: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  id: SandboxId,
  connection: SandboxConnection,
  wanted: ExecRequest,
): Promise<FastifyReply> {
  const { clock } = ctx;
  const began = clock.monotonic();
  const durationMs = () => Math.round(clock.monotonic() - began);
  const events = runCommand(connection.agent, clock, commandOf(request, wanted), commandSignal(ctx, request));
  // Read before the response headers are sent, so that a command that cannot start gets an ordinary error.
  const first = await request.deadline.run(() => events.next());
  const frames = async function* (): AsyncGenerator<Frame> {
    const text = new OutputDecoder();
    try {
      if (!first.done && first.value.is === 'start') {
        yield { event: 'start', data: { pid: first.value.pid, autoResumed: connection.autoResumed } };
      }
      for await (const event of events) {
        if (event.is === 'stdout' || event.is === 'stderr') {
          const data = text.decode(event.is, event.bytes);
          if (data !== '') yield { event: event.is, data: { data } };
        }
        if (event.is !== 'end') continue;
        for (const channel of ['stdout', 'stderr'] as const) {
          const data = text.flush(channel);
          if (data !== '') yield { event: channel, data: { data } };
        }
        yield {
          event: 'end',
          data: { exitCode: event.exitCode, signal: event.signal, durationMs: durationMs() },
        };
      }
    } catch (thrown) {
      const error = await failureOf(ctx, request, thrown, id, connection, { durationMs: durationMs() });
      yield { event: 'error', data: { ...error.toBody(), requestId: request.id } };
    }
  };
  // The command ends with its stream, even when the client never read a byte. Then the sandbox may sleep again.
  onResponseClosed(reply, () => {
    void events.return(undefined).finally(() => connection.release());
  });
  return sendEvents(ctx, request, reply, frames(), { resumable: false });
}
