/** The sandboxes of template builds, by the engine and the agents. */
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { CACHE_SECONDS, type StepSandboxes } from '@torpor/build-steps';
import type { Clock, Engine, Ids } from '@torpor/engine';
import type { AgentClient } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { TemplateBuildsContext } from '@torpor/template-builds';
import type { ConnectToAgent } from '../cluster/follow-sandboxes.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { runCommand } from '../sandbox/command.ts';
import { OutputDecoder } from '../sandbox/output.ts';

export interface StepContext {
  readonly engine: Engine;
  readonly connect: ConnectToAgent;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'next'>;
  /** No sandbox of a build lives longer than this. */
  readonly lifetimeMs: number;
}

/** The metadata key that holds the id of the build. */
const BUILD_KEY = 'torpor.template-build';
const ALIVE = ['creating', 'running', 'pausing', 'paused', 'resuming'] as const;
const MAX_SANDBOXES = 100;

export function stepSandboxes(
  ctx: StepContext,
  { org, buildId, signal, output }: Parameters<TemplateBuildsContext['sandboxes']>[0],
): StepSandboxes {
  const { engine, clock, ids } = ctx;
  const caller = { org, signal };
  return {
    findStep: async (name) => {
      const [newest] = await engine.namedCheckpoints(org, name, 1);
      return newest?.id;
    },
    create: async (origin, resources = {}) => {
      signal.throwIfAborted();
      const { sandbox } = await engine.create(caller, {
        ...origin,
        resources,
        metadata: { [BUILD_KEY]: buildId },
        timeoutSeconds: Math.max(1, Math.ceil(ctx.lifetimeMs / 1_000)),
        onTimeout: 'kill',
        onIdle: 'keep',
      });
      return { id: sandbox.id, name: sandbox.id };
    },
    run: async ({ id }, { quiet = false, ...command }) => {
      const text = new OutputDecoder();
      return withAgent(ctx, org, id, async (agent) => {
        const order = { ...command, tag: ids.next('req') };
        for await (const event of runCommand(agent, clock, order, signal)) {
          if (!quiet && (event.is === 'stdout' || event.is === 'stderr'))
            output(event.is, text.decode(event.is, event.bytes));
          if (event.is === 'end') return event.exitCode;
        }
        throw new TorporError('unreachable', 'The connection closed before the command ended.');
      });
    },
    write: ({ id }, path, content) =>
      withAgent(ctx, org, id, async (agent) => {
        await agent.files.write(path, Readable.from(content), { user: 'root', signal });
      }),
    read: ({ id }, path) =>
      withAgent(ctx, org, id, async (agent) =>
        buffer(await agent.files.read(path, { user: 'root', signal })),
      ),
    seal: async ({ id }, name) => {
      const { checkpoint } = await engine.snapshot(caller, id, { name, expiresInSeconds: CACHE_SECONDS });
      return checkpoint.id;
    },
    // Also when the build is given up.
    kill: ({ id }) => kill(engine, org, id),
  };
}

/** Kills the sandboxes that a build of a dead server left. */
export async function killSandboxesOf(engine: Engine, org: string, buildId: string): Promise<void> {
  const filter = { org, states: ALIVE, metadata: { [BUILD_KEY]: buildId } };
  const { items } = await engine.list(filter, '', MAX_SANDBOXES);
  for (const { id } of items) await kill(engine, org, id);
}

async function kill(engine: Engine, org: string, id: SandboxId): Promise<void> {
  await engine.kill({ org }, id).catch((thrown: unknown) => {
    if (!(thrown instanceof TorporError) || thrown.code !== 'not_found') throw thrown;
  });
}

/** Works with the agent, and keeps the sandbox awake meanwhile. */
async function withAgent<T>(
  { engine, connect }: StepContext,
  org: string,
  id: SandboxId,
  work: (agent: AgentClient) => Promise<T>,
): Promise<T> {
  const releaseLease = engine.leases.hold(id);
  let agent: AgentClient | undefined;
  try {
    agent = await connect(org, id);
    return await work(agent);
  } catch (thrown) {
    throw fromAgentError(thrown, id);
  } finally {
    agent?.close();
    releaseLease();
  }
}
