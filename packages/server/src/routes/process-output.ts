/** `GET …/{id}/processes/{process}/output`: the output of a process so far, and with `follow` also the new output. */
import type { Clock } from '@torpor/engine';
import { type AgentClient, serviceTag } from '@torpor/envd';
import { isId, type SandboxId, type SandboxView, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { errors, sandboxIdParam } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { type Frame, sendEvents } from '../http/sse.ts';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { endOf } from '../sandbox/command-end.ts';
import { OutputDecoder } from '../sandbox/output.ts';
import { connectToAgent } from '../sandbox/sandbox-connection.ts';

/** The agent does not mark the end of the stored output: it sends all of it at once, and then is silent. */
const SILENCE_MS = 250;

const params = z.object({
  id: sandboxIdParam,
  process: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,64}$/)
    .meta({ description: 'The name of a service, the id of a job, or a pid.' }),
});
const querystring = z.strictObject({ follow: z.stringbool().default(false) });

export function processOutputRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.get(
    '/v1/sandboxes/:id/processes/:process/output',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'readOutput',
        summary: 'The output of a service or a background process',
        description:
          'The events `start`, `stdout`, `stderr`, and `end` if the process has ended. Of a long output only the end is ' +
          'kept. Never wakes the sandbox.',
        tags: ['commands'],
        params,
        querystring,
        response: {
          200: { description: 'The stream.', content: { 'text/event-stream': { schema: z.string() } } },
          ...errors('not_found', 'conflict', 'transitioning', 'killed', 'lost'),
        },
      },
    },
    async (request, reply) => {
      const { id, process } = request.params;
      const { follow } = request.query;
      const { engine, stopping } = ctx;
      request.logFields.sandboxId = id;
      const sandbox = await request.deadline.run(() => engine.get(request.identity.org, id));
      const tag = await request.deadline.run(() => tagOf(ctx, request.identity.org, sandbox, process));
      const agent = connectToAgent(await request.deadline.run(() => engine.agent(request.identity.org, id)));
      reply.raw.once('close', () => agent.close());
      const signal = AbortSignal.any([request.deadline.signal, stopping]);
      const events = outputOf(agent, tag, signal);
      // Read before the response headers are sent, so that an unknown process gets an ordinary error.
      const first = await request.deadline
        .run(() => events.next())
        .catch((thrown: unknown) => {
          agent.close();
          throw fromAgentError(thrown, id);
        });
      if (first.done)
        throw new TorporError('not_found', `There is no process ${process}.`, { sandboxId: id });
      const output = frames(ctx, request, id, first.value, events, follow);
      return sendEvents(ctx, request, reply, output, { resumable: false });
    },
  );
}

/** The agent's tag of a service or background process; any other name is passed to the agent. */
async function tagOf(
  { engine }: RouteContext,
  org: string,
  { id, services }: SandboxView,
  process: string,
): Promise<string> {
  if (services.some(({ name }) => name === process)) return serviceTag(process);
  if (!isId('job', process)) return process;
  const job = await engine.job(org, process);
  if (job.sandboxId === id) return job.tag;
  throw new TorporError('not_found', `There is no process ${process}.`, { sandboxId: id });
}

type Output = AsyncGenerator<Frame>;

async function* outputOf(agent: AgentClient, name: string, signal: AbortSignal): Output {
  const selector = /^\d+$/.test(name)
    ? { case: 'pid' as const, value: Number(name) }
    : { case: 'tag' as const, value: name };
  const text = new OutputDecoder();
  for await (const { event } of agent.process.connect({ process: { selector } }, { signal })) {
    const agentEvent = event?.event;
    if (agentEvent?.case === 'start') yield { event: 'start', data: { pid: agentEvent.value.pid } };
    if (agentEvent?.case === 'data') {
      const { output } = agentEvent.value;
      // A terminal has one channel.
      const channel = output.case === 'stderr' ? 'stderr' : 'stdout';
      if (output.value !== undefined)
        yield { event: channel, data: { data: text.decode(channel, output.value) } };
    }
    if (agentEvent?.case === 'end') yield { event: 'end', data: endOf(agentEvent.value) };
  }
}

async function* frames(
  { clock }: RouteContext,
  request: FastifyRequest,
  id: SandboxId,
  first: Frame,
  events: Output,
  follow: boolean,
): Output {
  yield first;
  try {
    for (;;) {
      const next = events.next();
      const frame = follow ? await next : await unlessSilent(next, clock);
      if (frame === undefined || frame.done) return;
      yield frame.value;
    }
  } catch (thrown) {
    yield { event: 'error', data: { ...fromAgentError(thrown, id).toBody(), requestId: request.id } };
  } finally {
    request.deadline.end(new TorporError('timeout', 'The stream is over.'));
  }
}

async function unlessSilent<T>(next: Promise<T>, clock: Clock): Promise<T | undefined> {
  const received = new AbortController();
  const silence = clock.sleep(SILENCE_MS, received.signal).then(
    () => undefined,
    () => undefined,
  );
  try {
    return await Promise.race([next, silence]);
  } finally {
    received.abort();
    next.catch(() => {});
  }
}
