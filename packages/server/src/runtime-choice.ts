/** Which runtimes a server has, from what its operator asked for and what there is. */
import { bundleAgent } from '@torpor/agent';
import type { CheckpointStore, Clock, Runtime } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { PROCESS_LIMITS, processRuntime } from '@torpor/runtimes';
import type { ServerConfig } from './config.ts';
import { isLoopbackHost } from './http/loopback.ts';

export interface ChosenRuntime {
  readonly runtime: Runtime;
  /** What its users should know before they rely on it. */
  readonly limits: readonly string[];
}

export async function chooseRuntime(
  config: Pick<ServerConfig, 'runtime' | 'host' | 'dataDir'>,
  store: CheckpointStore,
  clock: Clock,
): Promise<ChosenRuntime> {
  const { runtime, host, dataDir } = config;
  if (runtime !== 'auto' && runtime !== 'process') {
    throw new TorporError('capability_unsupported', `This version of Torpor has no runtime "${runtime}".`, {
      hint: 'Use --runtime process, or leave it out.',
    });
  }
  if (runtime === 'auto' && !isLoopbackHost(host)) {
    throw new TorporError(
      'capability_unsupported',
      `The only runtime here does not isolate sandboxes, which is not for a server that listens on ${host}.`,
      { hint: 'Listen on 127.0.0.1, or say --runtime process if you trust everything that will run in it.' },
    );
  }
  const agentDir = await bundleAgent();
  const process = await processRuntime({ dataDir, agentDir, clock, sealedPath: (id) => store.path(id) });
  return { runtime: process, limits: PROCESS_LIMITS };
}
