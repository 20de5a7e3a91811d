/** Opens the process runtime over a data directory. */
import { createHash } from 'node:crypto';
import { mkdir, readFile, realpath, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type Runtime, systemClock } from '@torpor/engine';
import { errnoOf, hostProcesses } from '@torpor/host';
import type { CheckpointId } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, mapWriteErrors, type RuntimeSettings } from '@torpor/runtime-shared';
import type { AgentProgram } from './agent-process.ts';
import { inheritedDescriptors } from './inherited-descriptors.ts';
import { InstanceDirectory } from './instance-directory.ts';
import { ProcessRuntime } from './process-runtime.ts';
import { AGENT_SCRIPT, reachableProgram } from './reachable-program.ts';
import { availableUsers, type UserRange } from './sandbox-users.ts';

export interface ProcessRuntimeOptions {
  readonly dataDir: string;
  /** The directory of the agent's bundle, with `agent.mjs` in it. */
  readonly agentDir: string;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  /**
   * `path` of the checkpoint store. With it the checkpoints of one run share unchanged files; without it
   * only with the checkpoint that the run was started from.
   */
  readonly sealedPath?: (id: CheckpointId) => string;
  /** Where instances live. Their users must be able to pass through to it. */
  readonly instancesDir?: string;
  /** The Node that agents run on. */
  readonly node?: string;
  /** From which each instance gets a user of its own; null lets all of them run as the server's. */
  readonly users?: UserRange | null;
}

/** Where instances of root live: their users may not enter the data directory, and often not root's home either. */
const OUTSIDE = '/var/lib/torpor/process';

export async function processRuntime(options: ProcessRuntimeOptions): Promise<Runtime> {
  const { dataDir, agentDir, clock = systemClock, node = process.execPath } = options;
  const users = options.users === undefined ? await usualUsers() : options.users;
  await mapWriteErrors(dataDir, () => mkdir(dataDir, { recursive: true, mode: 0o700 }));
  const root = options.instancesDir ?? (await usualPlace(dataDir, users !== null));
  const directory = new InstanceDirectory(root, { shared: users !== null });
  await directory.open();
  const program: AgentProgram =
    users === null
      ? { node, script: join(agentDir, AGENT_SCRIPT) }
      : await reachableProgram(node, agentDir, join(root, '.program'));
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

async function usualUsers(): Promise<UserRange | null> {
  if (process.getuid?.() !== 0) return null;
  return availableUsers(await readFile('/proc/self/uid_map', 'utf8').catch(() => ''));
}

async function usualPlace(dataDir: string, isShared: boolean): Promise<string> {
  const inside = join(await realpath(dataDir), 'process');
  if (!isShared) return inside;
  const name = createHash('sha256').update(inside).digest('hex').slice(0, 12);
  const outside = join(OUTSIDE, name);
  // For people who look for it where it is without root.
  await symlink(outside, inside).catch((thrown: unknown) => {
    if (errnoOf(thrown) === undefined) throw thrown;
  });
  return outside;
}
