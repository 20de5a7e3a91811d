/**
 * The tools that every pod gets: the agent, Node, and the loader and libraries that Node needs, so that they run in an image
 * without any of them, whatever its C library is.
 */
import { chmod, copyFile, cp, mkdir, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Libraries, librariesOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export interface AgentToolsOptions {
  /** The Node program to copy. */
  readonly node: string;
  /** The directory of the agent's bundle. */
  readonly agentDir: string;
}

export async function writeAgentTools(into: string, { node, agentDir }: AgentToolsOptions): Promise<void> {
  const own = await librariesOf(node);
  if (own?.loader === undefined) throw new TorporError('internal', `${node} names no loader.`);
  await mkdir(join(into, 'lib'), { recursive: true, mode: 0o755 });
  await cp(agentDir, join(into, 'agent'), { recursive: true, dereference: true });
  await copyFile(node, join(into, 'node'));
  await copyFile(own.loader, join(into, 'lib', 'loader'));
  for (const library of librariesIn([own, ...(await nativeModules(agentDir))])) {
    await copyFile(library, join(into, 'lib', basename(library)));
  }
  // Every user of a pod may run them.
  for (const name of ['node', ...(await readdir(join(into, 'lib'))).map((file) => join('lib', file))]) {
    await chmod(join(into, name), 0o755);
  }
}

function librariesIn(all: readonly (Libraries | undefined)[]): ReadonlySet<string> {
  return new Set(all.flatMap((one) => one?.libraries ?? []));
}

async function nativeModules(agentDir: string): Promise<(Libraries | undefined)[]> {
  const files = await readdir(agentDir, { recursive: true });
  const native = files.filter((file) => file.endsWith('.node'));
  return Promise.all(native.map((file) => librariesOf(join(agentDir, file))));
}
