/**
 * The agent program: `agent [--listen …] [--root …]`. One line on stderr says that it is ready and where it listens.
 */
import { readFileSync, rmSync } from 'node:fs';
import { ENVD_VERSION } from '@torpor/envd';
import { startAgent } from './agent.ts';
import { type AgentOptions, CREDENTIAL_VARIABLE, readOptions } from './startup/agent-options.ts';
import { closeInherited } from './startup/inherited-descriptors.ts';

function log(level: 'info' | 'error', message: string, fields: Record<string, unknown> = {}): void {
  process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), level, message, ...fields })}\n`);
}

/** The process table is in the memory of this process, so an error in one request must not end it. */
function logUncaughtErrors(): void {
  process.stderr.on('error', () => {});
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (thrown: unknown) => {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      log('error', 'uncaught error', { name: error.name, stack: error.stack });
    });
  }
}

function takeCredential({ credential, credentialFile }: AgentOptions): string | undefined {
  if (credentialFile === undefined) return credential;
  const taken = readFileSync(credentialFile, 'utf8').trim();
  rmSync(credentialFile);
  return taken;
}

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2), process.env);
  delete process.env[CREDENTIAL_VARIABLE];
  process.umask(0o022);
  closeInherited(options.close);
  // Terminals inherit the agent's supplementary groups, and users must not get those of root.
  if (process.getuid?.() === 0) process.setgroups?.([]);
  const agent = await startAgent({ ...options, credential: takeCredential(options) });
  logUncaughtErrors();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.once(signal, () => void agent.close().finally(() => process.exit(0)));
  }
  log('info', 'agent ready', {
    listen: agent.address,
    pid: process.pid,
    user: agent.user.name,
    root: options.root,
    version: ENVD_VERSION,
  });
}

main().catch((thrown: unknown) => {
  log('error', 'the agent could not start', {
    reason: thrown instanceof Error ? thrown.message : String(thrown),
  });
  process.exit(1);
});
