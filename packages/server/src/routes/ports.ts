/** `GET …/{id}/ports`: the declared and the open ports of a sandbox. Never wakes the sandbox. */
import type { Address, Engine } from '@torpor/engine';
import {
  isTerminal,
  type PortView,
  pageSchema,
  portViewSchema,
  type SandboxId,
  type SandboxView,
} from '@torpor/protocol';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { connectToAgent } from '../sandbox/sandbox-connection.ts';

interface Listener {
  readonly port: number;
  readonly address: string;
  readonly pid: number;
  readonly processName: string;
}

export function portRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.get(
    '/v1/sandboxes/:id/ports',
    {
      schema: {
        operationId: 'listPorts',
        summary: 'The declared and the open ports of a sandbox',
        description: 'Never wakes the sandbox. For a paused sandbox only the declared ports are listed.',
        tags: ['commands'],
        params: sandboxParams,
        response: {
          200: json('All ports.', pageSchema(portViewSchema)),
          ...errors('not_found', 'transitioning'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { org } = request.identity;
      request.logFields.sandboxId = id;
      const items = await request.deadline.run(async (signal) => {
        const sandbox = await ctx.engine.get(org, id);
        const found = await portsOf(ctx.engine, org, sandbox, signal);
        return found.map((port) => ({ ...port, url: urlOf(ctx, sandbox, port) }));
      });
      return { items, nextCursor: null };
    },
  );
}

/** The preview address of a port. A request to a declared port wakes a paused sandbox. */
function urlOf({ gateway }: RouteContext, { id, state }: SandboxView, port: FoundPort): string | null {
  if (gateway === undefined || isTerminal(state)) return null;
  return port.listening || port.service !== null ? gateway.urlOf(id, port.port) : null;
}

/** The open ports of a running sandbox, by the numbers that preview addresses use. */
export async function openPortsOf(
  engine: Engine,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<number[]> {
  const found = await portsOf(engine, org, await engine.get(org, id), signal);
  return found.filter(({ isReachable }) => isReachable).map(({ port }) => port);
}

async function portsOf(
  engine: Engine,
  org: string,
  sandbox: SandboxView,
  signal: AbortSignal,
): Promise<FoundPort[]> {
  if (sandbox.state !== 'running') return viewPorts(sandbox, [], new Map());
  const open = await listeners(engine, org, sandbox.id, signal);
  return viewPorts(sandbox, open, await addresses(engine, org, sandbox, open));
}

type FoundPort = Omit<PortView, 'url'> & {
  /** Whether the port can be dialled. With the process runtime another program of the host may listen on it. */
  readonly isReachable: boolean;
};

async function listeners(
  engine: Engine,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<Listener[]> {
  const agent = connectToAgent(await engine.agent(org, id));
  try {
    return await agent.ports({ signal });
  } catch (thrown) {
    throw fromAgentError(thrown, id);
  } finally {
    agent.close();
  }
}

/** The address of each port of a running sandbox, without ports that nothing in the sandbox listens on. */
async function addresses(
  engine: Engine,
  org: string,
  sandbox: SandboxView,
  open: readonly Listener[],
): Promise<Map<number, Address>> {
  const found = new Map<number, Address>();
  for (const port of new Set([...declaredPorts(sandbox).keys(), ...open.map((one) => one.port)])) {
    const address = await engine.dial(org, sandbox.id, port);
    if (address !== null) found.set(port, address);
  }
  return found;
}

function declaredPorts({ services }: SandboxView): Map<number, string> {
  return new Map(services.flatMap(({ name, port }) => (port === undefined ? [] : [[port, name]])));
}

/**
 * A port that is open on several addresses is shown once. A host port that stands for a declared port is shown as the
 * declared port.
 */
function viewPorts(
  sandbox: SandboxView,
  open: readonly Listener[],
  addresses: ReadonlyMap<number, Address>,
): FoundPort[] {
  const declared = declaredPorts(sandbox);
  const behind = (port: number) => {
    const address = addresses.get(port);
    return address === undefined || 'socketPath' in address ? port : address.port;
  };
  const stoodFor = new Set([...declared.keys()].map(behind));
  const others = open.map(({ port }) => port).filter((port) => !stoodFor.has(port));
  return [...new Set([...declared.keys(), ...others])]
    .sort((a, b) => a - b)
    .map((port) => {
      const address = addresses.get(port);
      const listener = open.find((one) => one.port === behind(port));
      return {
        port,
        service: declared.get(port) ?? null,
        listening: listener !== undefined || address !== undefined,
        address: listener?.address ?? null,
        pid: listener?.pid || null,
        process: listener?.processName || null,
        isReachable: address !== undefined,
      };
    });
}
