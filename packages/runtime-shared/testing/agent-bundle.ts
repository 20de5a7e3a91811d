/** Builds the agent's bundle with the script of its package. The script is not imported, because runtimes know the bundle only as a directory. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

let built: Promise<string> | undefined;

export function agentBundle(): Promise<string> {
  built ??= build();
  return built;
}

async function build(): Promise<string> {
  const script = join(import.meta.dirname, '../../agent/build.ts');
  const { stdout } = await promisify(execFile)(process.execPath, [script]);
  return stdout.trim();
}
