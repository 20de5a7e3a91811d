/**
 * Makes Node and the agent readable for the users of instances. A server of root often lives in a home directory that no
 * other user may enter. Programs that other users cannot reach are copied to a directory that they can.
 */
import { chmod, copyFile, cp, mkdir, realpath, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { removeTree } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';
import type { AgentProgram } from './agent-setup.ts';

export const AGENT_SCRIPT = 'agent.mjs';

const OTHERS_READ = 0o004;
const OTHERS_ENTER = 0o001;

export async function makeReachable(
  node: string,
  agentDir: string,
  copiesDir: string,
): Promise<AgentProgram> {
  const [ownNode, ownAgent] = await Promise.all([realpath(node), realpath(agentDir)]);
  return mapWriteErrors(copiesDir, async () => ({
    node: (await isReachable(ownNode)) ? ownNode : await copyNode(ownNode, copiesDir),
    script: join(
      (await isReachable(ownAgent)) ? ownAgent : await copyAgent(ownAgent, copiesDir),
      AGENT_SCRIPT,
    ),
  }));
}

/** Whether every user may read and execute the path and enter all directories above it. */
async function isReachable(path: string): Promise<boolean> {
  const wanted = OTHERS_READ | OTHERS_ENTER;
  if (((await stat(path)).mode & wanted) !== wanted) return false;
  for (let at = dirname(path); ; at = dirname(at)) {
    if (((await stat(at)).mode & OTHERS_ENTER) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

/** The name contains size and time of the original: instances of an earlier server may still run an earlier copy. */
async function copyNode(node: string, copiesDir: string): Promise<string> {
  const { size, mtimeMs } = await stat(node);
  const copy = join(copiesDir, `node-${size}-${Math.round(mtimeMs)}`);
  if (await exists(copy)) return copy;
  await makeCopiesDir(copiesDir);
  await copyFile(node, `${copy}.new`);
  await chmod(`${copy}.new`, 0o755);
  await rename(`${copy}.new`, copy);
  return copy;
}

async function copyAgent(agentDir: string, copiesDir: string): Promise<string> {
  const { size, mtimeMs } = await stat(join(agentDir, AGENT_SCRIPT));
  const copy = join(copiesDir, `agent-${size}-${Math.round(mtimeMs)}`);
  if (await exists(copy)) return copy;
  await makeCopiesDir(copiesDir);
  await removeTree(`${copy}.new`);
  await cp(agentDir, `${copy}.new`, { recursive: true, dereference: true });
  await rename(`${copy}.new`, copy);
  return copy;
}

async function makeCopiesDir(copiesDir: string): Promise<void> {
  await mkdir(copiesDir, { recursive: true });
  await chmod(copiesDir, 0o755);
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
