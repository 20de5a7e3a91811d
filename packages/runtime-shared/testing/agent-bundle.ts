/** The agent's bundle, built by its own package. It is run and not imported: runtimes know it as a directory only. */
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
