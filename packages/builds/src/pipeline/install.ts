/** Installs the dependencies of an application; tries once more when only the network failed. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import type { BuildLog } from '../logs/build-log.ts';
import { WORKSPACE } from './workspace.ts';

/** npm's error codes for network failures. */
const NETWORK = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'ECONNABORTED',
  'ETIMEDOUT',
  'ENETUNREACH',
  'EAI_AGAIN',
  'ERR_SOCKET_TIMEOUT',
  'ENETWORK',
]);
const CODE = /^npm (?:error|ERR!) code ([A-Z_]+)$/m;
const TAIL = 4_000;

export async function install(
  ctx: BuildContext,
  job: BuildJob,
  id: SandboxId,
  command: string,
  log: BuildLog,
  signal: AbortSignal,
): Promise<void> {
  const { settings, clock, sandboxes } = ctx;
  for (let attempt = 1; ; attempt++) {
    let tail = '';
    const installCommand = {
      command,
      cwd: WORKSPACE,
      timeoutMs: settings.installMs,
      output: (channel: string, text: string) => {
        tail = (tail + text).slice(-TAIL);
        log.output(channel, text);
      },
    };
    const { exitCode } = await sandboxes.run(job.org, id, installCommand, signal);
    if (exitCode === 0) return;
    const code = CODE.exec(tail)?.[1] ?? '';
    if (attempt > 1 || !NETWORK.has(code)) {
      throw new TorporError('conflict', `Installing the dependencies failed (exit ${exitCode}).`);
    }
    log.line('torpor', `The network failed (${code}); trying again in ${settings.installRetryMs / 1_000} s.`);
    await clock.sleep(settings.installRetryMs, signal);
  }
}
