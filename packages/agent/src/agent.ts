/** Assembles an agent and starts its HTTP server. */
import { realpath } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { fileHandler } from './files/file-handler.ts';
import { Paths } from './files/paths.ts';
import { routes } from './http/routes.ts';
import { freshIds, kernelRandomness } from './identity/fresh-id.ts';
import { SandboxIdentity } from './identity/sandbox-identity.ts';
import { ownUser, type User, Users } from './identity/users.ts';
import { setHostname, writeNames } from './machine/machine-names.ts';
import { MetricsSource } from './machine/metrics.ts';
import { ProcessLimit } from './machine/process-limit.ts';
import { trustAuthority } from './machine/trusted-authority.ts';
import { VisibleProcessors } from './machine/visible-processors.ts';
import { listeningPorts, listeningSockets } from './network/listening-ports.ts';
import { PortForwarders } from './network/port-forwarders.ts';
import { launch } from './processes/process-service.ts';
import { killQuietly, ProcessTable } from './processes/process-table.ts';
import type { ProcessScope } from './processes/sandbox-processes.ts';
import { ShellPipes } from './processes/shell-pipes.ts';
import { loadTerminals } from './processes/terminal.ts';
import type { AgentOptions } from './startup/agent-options.ts';
import { listen } from './startup/listen.ts';
import { remountProc } from './startup/remount-proc.ts';
import { Accounts } from './sudo/accounts.ts';
import { serveCaller } from './sudo/caller.ts';
import { SudoSockets } from './sudo/sudo-sockets.ts';
import { TurnRecords } from './turns/turn-records.ts';
import { Turns } from './turns/turns.ts';

export interface RunningAgent {
  /** `host:port` or `unix:path`. */
  readonly address: string;
  readonly user: User;
  /** Ends the sandbox's processes: SIGTERM first, SIGKILL after a grace period. */
  close(): Promise<void>;
}

const GRACE_MS = 1000;

export async function startAgent(options: AgentOptions): Promise<RunningAgent> {
  if (options.ownMachine) await remountProc();
  const processors = new VisibleProcessors();
  if (options.processorsDir !== undefined) await processors.coverFiles(options.processorsDir);
  const root = options.root === undefined ? undefined : await realpath(options.root);
  const known = ownUser(root ?? options.home);
  const own = { ...known, name: options.user ?? known.name };
  const users = new Users({ own, isSingleUser: root !== undefined });
  const identity = new SandboxIdentity({ ...options, clock: Date.now });
  const paths = new Paths(root);
  const monotonicMs = () => performance.now();
  const table = new ProcessTable({ now: monotonicMs, kill: killQuietly });
  const stateDir = options.stateDir ?? defaultStateDir(own, root);
  const metadataFile = join(stateDir, 'file-metadata.json');
  const pipes = new ShellPipes();
  const processLimit = new ProcessLimit();
  const forwarders = new PortForwarders({
    listening: listeningSockets,
    agentPort: () => ('port' in bound ? bound.port : undefined),
  });
  const sudo = options.sudoDir === undefined ? undefined : sudoSockets(options.sudoDir, identity, pipes);
  const scope = (): ProcessScope => ({
    shared: root === undefined ? undefined : { sandboxId: identity.sandboxId, agentPid: process.pid },
  });
  const processes = { table, users, identity, paths, pipes, env: process.env };
  const warmUp = async () => {
    await Promise.all([pipes.warmUp(), loadTerminals().catch(() => {})]);
    // Shrinks the memory image of every sandbox. Present only when Node runs with `--expose-gc`.
    globalThis.gc?.();
  };
  const server = createServer(
    // Uploads and streams of input may take any time.
    { requestTimeout: 0, keepAliveTimeout: 75_000, keepAlive: true },
    routes({
      identity,
      processes,
      turns: new Turns({
        records: new TurnRecords(join(stateDir, 'turns')),
        launch: (request) => launch(processes, request, {}),
      }),
      files: fileHandler({ users, identity, paths, metadataFile, newId: freshIds(kernelRandomness()) }),
      ports: () => listeningPorts(scope(), (socket) => forwarders.isAgentSocket(socket)),
      forward: (port) => forwarders.dialPort(port),
      metrics: new MetricsSource(scope, root ?? '/'),
      monotonicMs,
      applyHostname: async (name) => options.ownMachine && (await setHostname(name)),
      applyNames: (names) => options.ownMachine && writeNames(names),
      limitProcesses: async (most) => options.ownMachine && (await processLimit.set(most)),
      showProcessors: async (count) => options.ownMachine && (await processors.set(count)),
      trustAuthority: (authority) => options.ownMachine && trustAuthority(authority),
      warmUp,
    }),
  );
  const bound = await listen(server, options.listen);
  await sudo?.renew();
  if (options.warmUp) void warmUp();
  return {
    address: 'path' in bound ? `unix:${bound.path}` : `${bound.host}:${bound.port}`,
    user: own,
    async close() {
      server.close();
      server.closeAllConnections();
      sudo?.close();
      forwarders.close();
      await pipes.close();
      await endAllProcesses(table);
    },
  };
}

function sudoSockets(directory: string, identity: SandboxIdentity, pipes: ShellPipes): SudoSockets {
  const accounts = new Accounts();
  const parts = { accounts, pipes, env: process.env, sandboxId: () => identity.sandboxId };
  return new SudoSockets({
    directory,
    accounts,
    serve: (socket, caller) => serveCaller(socket, caller, parts),
  });
}

async function endAllProcesses(table: ProcessTable): Promise<void> {
  const running = table.list();
  for (const process of running) table.signal(process, 'SIGTERM');
  const ended = Promise.all(running.map(({ started }) => started.ended));
  const grace = new Promise((resolve) => setTimeout(resolve, GRACE_MS).unref());
  await Promise.race([ended, grace]);
  for (const process of running) table.signal(process, 'SIGKILL');
}

function defaultStateDir(own: User, root: string | undefined): string {
  if (root !== undefined) return join(root, '.torpor');
  return own.uid === 0 ? '/var/lib/torpor' : join(own.home, '.local', 'state', 'torpor');
}
