/** `GET …/{id}/ports`: what a sandbox declares and what it listens on. Never wakes it. */
import {
  type PortView,
  pageSchema,
  portViewSchema,
  type SandboxId,
  type SandboxView,
} from '@torpor/protocol';
import { errors, json, sandboxParams } from './http/route-schema.ts';
import type { RoutesApp } from './http/routes-app.ts';
import type { RouteParts } from './parts.ts';
import { fromAgent } from './sandbox/agent-failure.ts';
import { connect } from './sandbox/awake.ts';

interface Listener {
  readonly port: number;
  readonly address: string;
  readonly pid: number;
  readonly processName: string;
}

export function portRoutes(app: RoutesApp, parts: RouteParts): void {
  app.get(
    '/v1/sandboxes/:id/ports',
    {
      schema: {
        operationId: 'listPorts',
        summary: 'The ports of a sandbox, declared and open',
        description: 'Never wakes the sandbox: of one that sleeps only the declared ports are shown.',
        tags: ['commands'],
        params: sandboxParams,
        response: {
          200: json('All of them.', pageSchema(portViewSchema)),
          ...errors('not_found', 'transitioning'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { org } = request.identity;
      request.facts.sandboxId = id;
      const items = await request.bound.run(async (signal) => {
        const sandbox = await parts.engine.get(org, id);
        const open = sandbox.state === 'running' ? await listeners(parts, org, id, signal) : [];
        return viewPorts(parts, sandbox, open);
      });
      return { items, nextCursor: null };
    },
  );
}

async function listeners(
  { engine }: RouteParts,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<Listener[]> {
  const agent = connect(await engine.agent(org, id));
  try {
    return await agent.ports({ signal });
  } catch (thrown) {
    throw fromAgent(thrown, id);
  } finally {
    agent.close();
  }
}

/** A port that is open on several addresses is shown once. */
function viewPorts({ urlOf }: RouteParts, sandbox: SandboxView, open: readonly Listener[]): PortView[] {
  const declared = new Map(
    sandbox.services.flatMap(({ name, port }) => (port === undefined ? [] : [[port, name]])),
  );
  const ports = new Set([...declared.keys(), ...open.map(({ port }) => port)]);
  return [...ports]
    .sort((a, b) => a - b)
    .map((port) => {
      const listener = open.find((one) => one.port === port);
      return {
        port,
        url: urlOf(sandbox.id, port),
        service: declared.get(port) ?? null,
        listening: listener !== undefined,
        address: listener?.address ?? null,
        pid: listener?.pid || null,
        process: listener?.processName || null,
      };
    });
}
