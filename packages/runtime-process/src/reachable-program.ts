/**
 * The Node and the agent that sandboxes run, where their users can reach them. A server of root often lives
 * in a home that nobody else may enter; what cannot be reached there is copied to where it can.
 */
import { chmod, copyFile, cp, mkdir, realpath, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { removeTree } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';
import type { AgentProgram } from './agent-process.ts';

export const AGENT_SCRIPT = 'agent.mjs';

const OTHERS_READ = 0o004;
const OTHERS_ENTER = 0o001;

export async function reachableProgram(node: string, agentDir: string, shelf: string): Promise<AgentProgram> {
  const [ownNode, ownAgent] = await Promise.all([realpath(node), realpath(agentDir)]);
  return mapWriteErrors(shelf, async () => ({
    node: (await isReachable(ownNode)) ? ownNode : await copyNode(ownNode, shelf),
    script: join((await isReachable(ownAgent)) ? ownAgent : await copyAgent(ownAgent, shelf), AGENT_SCRIPT),
  }));
}

/** Whether any user may read and enter it and enter everything above it. */
async function isReachable(path: string): Promise<boolean> {
  const wanted = OTHERS_READ | OTHERS_ENTER;
  if (((await stat(path)).mode & wanted) !== wanted) return false;
  for (let at = dirname(path); ; at = dirname(at)) {
    if (((await stat(at)).mode & OTHERS_ENTER) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

/** Named for what it is a copy of: instances of an earlier server may still run an earlier one. */
async function copyNode(node: string, shelf: string): Promise<string> {
  const { size, mtimeMs } = await stat(node);
  const copy = join(shelf, `node-${size}-${Math.round(mtimeMs)}`);
  if (await exists(copy)) return copy;
  await openShelf(shelf);
  await copyFile(node, `${copy}.new`);
  await chmod(`${copy}.new`, 0o755);
  await rename(`${copy}.new`, copy);
  return copy;
}

async function copyAgent(agentDir: string, shelf: string): Promise<string> {
  const { size, mtimeMs } = await stat(join(agentDir, AGENT_SCRIPT));
  const copy = join(shelf, `agent-${size}-${Math.round(mtimeMs)}`);
  if (await exists(copy)) return copy;
  await openShelf(shelf);
  await removeTree(`${copy}.new`);
  await cp(agentDir, `${copy}.new`, { recursive: true, dereference: true });
  await rename(`${copy}.new`, copy);
  return copy;
}

async function openShelf(shelf: string): Promise<void> {
  await mkdir(shelf, { recursive: true });
  await chmod(shelf, 0o755);
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
