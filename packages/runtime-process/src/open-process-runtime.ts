/** Opens the process runtime over a data directory. */
import { createHash } from 'node:crypto';
import { mkdir, readFile, realpath, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type Runtime, systemClock } from '@torpor/engine';
import { SANDBOX_VARIABLE } from '@torpor/envd';
import { errnoOf, type GuardTargets, hostProcesses, NO_TARGETS } from '@torpor/host';
import type { CheckpointId } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, mapWriteErrors, type RuntimeSettings } from '@torpor/runtime-shared';
import { AGENT_SCRIPT, makeReachable } from './instance/agent-program.ts';
import type { AgentProgram } from './instance/agent-setup.ts';
import { inheritedDescriptors } from './instance/inherited-descriptors.ts';
import { InstanceDirectory } from './instance/instance-directory.ts';
import { ProcessRuntime } from './process-runtime.ts';
import { availableUsers, type UserRange } from './processes/sandbox-users.ts';

export interface ProcessRuntimeOptions {
  readonly dataDir: string;
  /** The directory of the agent's bundle, which contains `agent.mjs`. */
  readonly agentDir: string;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  /**
   * The `path` method of the checkpoint store. With it all checkpoints of one run share unchanged files. Without it a
   * checkpoint shares files only with the one that the run was started from.
   */
  readonly sealedPath?: (id: CheckpointId) => string;
  /** The directory of all instances. Their users need search permission on all directories above it. */
  readonly instancesDir?: string;
  /** The path of the Node program that runs agents. */
  readonly node?: string;
  /** The user ids from which each instance gets its own. Null runs all instances as the server's user. */
  readonly users?: UserRange | null;
}

/** The directory of instances when the server runs as root: their users may not enter the data directory, and often not root's home. */
const SHARED_ROOT = '/var/lib/torpor/process';

export async function processRuntime(options: ProcessRuntimeOptions): Promise<Runtime> {
  const { dataDir, agentDir, clock = systemClock, node = process.execPath } = options;
  const users = options.users === undefined ? await defaultUsers() : options.users;
  await mapWriteErrors(dataDir, () => mkdir(dataDir, { recursive: true, mode: 0o700 }));
  const root = options.instancesDir ?? (await defaultRoot(dataDir, users !== null));
  const directory = new InstanceDirectory(root, { shared: users !== null });
  await directory.open();
  const program: AgentProgram =
    users === null
      ? { node, script: join(agentDir, AGENT_SCRIPT) }
      : await makeReachable(node, agentDir, join(root, '.program'));
  const { sealedPath = null } = options;
  const inherited = await inheritedDescriptors();
  return new ProcessRuntime({
    directory,
    host: hostProcesses(),
    clock,
    settings: options.settings ?? DEFAULT_RUNTIME_SETTINGS,
    program,
    inherited,
    users,
    sealedPath,
  });
}

/** The processes of all sandboxes of a data directory, for the guard of a node. */
export async function processGuardTargets(dataDir: string): Promise<GuardTargets> {
  const users = await defaultUsers();
  const directory = await defaultRoot(dataDir, users !== null);
  return { ...NO_TARGETS, marked: [{ variable: SANDBOX_VARIABLE, directory }] };
}

async function defaultUsers(): Promise<UserRange | null> {
  if (process.getuid?.() !== 0) return null;
  return availableUsers(await readFile('/proc/self/uid_map', 'utf8').catch(() => ''));
}

async function defaultRoot(dataDir: string, isShared: boolean): Promise<string> {
  const inside = join(await realpath(dataDir), 'process');
  if (!isShared) return inside;
  const name = createHash('sha256').update(inside).digest('hex').slice(0, 12);
  const outside = join(SHARED_ROOT, name);
  // A link at the place where a server without root keeps its instances, for operators who look there.
  await symlink(outside, inside).catch((thrown: unknown) => {
    if (errnoOf(thrown) === undefined) throw thrown;
  });
  return outside;
}
