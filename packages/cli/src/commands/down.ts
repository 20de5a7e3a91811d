/** `torpor down`: pauses every running sandbox of all organisations, and stops the server of this machine. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxId } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { findConnection, isAlive, readJson } from '../connection.ts';
import { EXIT } from '../exit-codes.ts';
import { CliError, failureOf } from '../failure.ts';

interface NotPaused {
  readonly id: SandboxId;
  readonly why: string;
}

/** A request may wake a sandbox that was just paused, so the list is read again. */
const ROUNDS = 3;
const POLL_MS = 100;
/** Longer than a stopping server waits for requests and operations. */
const STOP_MS = 120_000;

export const define: Define = (command, handler) => {
  command.option(
    '--force',
    'stop the server although some sandboxes cannot be paused; those continue to run',
  );
  addExamples(command, {
    examples: [
      ['torpor down', 'exits with 1 and does not stop the server when a sandbox cannot be paused'],
      ['torpor down && torpor destroy --data-dir ./data', 'stop it and remove its data'],
    ],
    seeAlso: ['up', 'pause', 'destroy'],
  });
  command.action(
    handler<{ force?: boolean }>(async (cli, _, { force = false }) => {
      const { dataDir } = await findConnection(cli.io, cli.options);
      const pid = await findServerProcess(dataDir);
      const { paused, unpaused } = await pauseAll(cli);
      const stops = unpaused.length === 0 || force;
      if (stops) {
        process.kill(pid, 'SIGTERM');
        await cli.withSpinner('Stopping the server…', waitForExit(pid, cli.signal));
      }
      cli.answer({ stopped: stops, paused, unpaused }, () =>
        [
          ...unpaused.map(({ id, why }) => `${id} cannot be paused: ${why}`),
          stops ? 'the server has stopped' : 'the server still runs; --force stops it anyway',
          ...(stops && unpaused.length > 0 ? ['sandboxes that could not be paused continue to run'] : []),
        ].join('\n'),
      );
      return unpaused.length === 0 ? EXIT.ok : EXIT.general;
    }),
  );
};

/** The process id of the server that holds the data directory, from its server.json. */
async function findServerProcess(dataDir: string): Promise<number> {
  const { pid } = (await readJson(join(dataDir, 'server.json'))) ?? {};
  if (typeof pid === 'number' && isAlive(pid)) return pid;
  throw new CliError('NOT_FOUND', `No server on this machine uses the data directory ${dataDir}.`, {
    hint: 'Name its data directory with --data-dir. Stop a remote server on its own machine.',
  });
}

async function pauseAll(cli: Cli): Promise<{ paused: SandboxId[]; unpaused: NotPaused[] }> {
  const torpor = await cli.torpor();
  const paused = new Set<SandboxId>();
  const unpaused = new Map<SandboxId, string>();
  for (let round = 0; round < ROUNDS; round++) {
    unpaused.clear();
    const awake: SandboxId[] = [];
    for await (const { id } of torpor.awake({ signal: cli.signal })) awake.push(id);
    for (const [index, id] of awake.entries()) {
      const label = `Pausing ${id} (${index + 1} of ${awake.length})…`;
      await cli.withSpinner(label, torpor.putToSleep(id, { signal: cli.signal })).then(
        ({ checkpointId }) => {
          paused.add(id);
          if (!cli.json) cli.line(`${id} is paused in ${checkpointId} (${index + 1} of ${awake.length})`);
        },
        async (thrown: unknown) => {
          cli.signal.throwIfAborted();
          unpaused.set(id, (await failureOf(thrown)).message);
        },
      );
    }
    if (awake.length === 0) break;
  }
  return { paused: [...paused], unpaused: [...unpaused].map(([id, why]) => ({ id, why })) };
}

/** Polls, because only the parent of a process is notified of its end. */
async function waitForExit(pid: number, signal: AbortSignal): Promise<void> {
  const bound = AbortSignal.any([signal, AbortSignal.timeout(STOP_MS)]);
  while (isAlive(pid)) {
    await sleep(POLL_MS, undefined, { signal: bound }).catch(() => {
      signal.throwIfAborted();
      throw new CliError('CHECK_FAILED', `The server (process ${pid}) has not stopped. Its log says why.`);
    });
  }
}
