/** Containers of the real runsc for tests. `dispose` throws when a process or a file of one is left over. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readlink, realpath, rm, watch } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type TinyBundle, writeTinyBundle } from '../src/host-checks/tiny-bundle.ts';
import { Runsc } from '../src/runsc/runsc.ts';
import type { RunscOptions } from '../src/runsc/runsc-cli.ts';
import type { Container } from '../src/runsc/runsc-container.ts';
import { runscProcesses } from '../src/runsc/sentries.ts';
import { chosenRunsc } from './chosen-runsc.ts';

/** Not imported from the engine's tests, because benchmarks run this file too. */
const unhurried = new AbortController().signal;

/** The state of the program inside. `life` stays the same as long as its memory is kept. */
interface Count {
  readonly life: string;
  readonly count: number;
}

export interface RunscWorld {
  readonly top: string;
  readonly runsc: Runsc;
  readonly options: RunscOptions;
  /** Writes a bundle whose program counts in memory and publishes the count. Nothing runs yet. */
  counter(bundle?: Partial<TinyBundle>): Promise<Container>;
  started(): Promise<Container>;
  /** Waits until the published count fulfils the condition, and returns it. */
  count(container: Container, until: (count: Count) => boolean): Promise<Count>;
  dispose(): Promise<void>;
}

/**
 * The program may be captured between any two lines and restored over another, empty `/shown`. So it holds no file open
 * there (the target of a link is the published count), and it makes the link again when the link is gone.
 */
const COUNT = `
  const fs = require('node:fs');
  const life = require('node:crypto').randomUUID();
  let count = 0;
  console.log('counting');
  setInterval(() => {
    count += 1;
    try {
      fs.symlinkSync(JSON.stringify({ life, count }), '/shown/next');
      fs.renameSync('/shown/next', '/shown/count');
    } catch {
      fs.rmSync('/shown/next', { force: true });
    }
  }, 10);
`;

/** The real runsc; undefined where its tests must be skipped. */
export async function usableRunsc(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  return (await chosenRunsc())?.program;
}

export async function makeRunscWorld(program: string, more: Partial<RunscOptions> = {}): Promise<RunscWorld> {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-r-')));
  const options = {
    program,
    root: join(top, 'root'),
    network: 'none',
    ignoreCgroups: true,
    ...more,
  } as const;
  // A server makes this directory when it opens, and a prepared restore locks a file in it.
  await mkdir(options.root, { mode: 0o700 });
  const runsc = new Runsc(options);
  const made: Container[] = [];

  const counter: RunscWorld['counter'] = async (bundle = {}) => {
    const id = `test-${randomBytes(4).toString('hex')}`;
    const directory = join(top, id);
    await mkdir(join(directory, 'shown'), { recursive: true });
    const binds = {
      '/node': { source: dirname(process.execPath), writable: false },
      '/shown': { source: join(directory, 'shown'), writable: true },
    };
    await writeTinyBundle(directory, {
      args: ['/node/node', '-e', COUNT],
      ...bundle,
      binds: { ...binds, ...bundle.binds },
    });
    const container = { id, bundle: directory, logs: join(directory, 'logs'), netns: bundle.netns ?? null };
    made.push(container);
    return container;
  };
  const count: RunscWorld['count'] = async ({ bundle }, until) => {
    const enough = AbortSignal.timeout(20_000);
    for await (const _ of changes(join(bundle, 'shown'), enough)) {
      const shown = await readlink(join(bundle, 'shown', 'count')).catch(() => '');
      if (shown !== '' && until(JSON.parse(shown) as Count)) return JSON.parse(shown) as Count;
    }
    throw new Error('The count never fulfilled the condition.');
  };

  return {
    top,
    runsc,
    options,
    counter,
    count,
    started: async () => {
      const container = await counter();
      await runsc.run(container, unhurried);
      await count(container, () => true);
      return container;
    },
    dispose: async () => {
      try {
        for (const container of made) {
          await runsc.killProcesses(container, unhurried);
          await runsc.deleteState(container.id);
        }
        const left = [
          ...(await readdir(options.root).catch(() => [])),
          ...(await runscProcesses(options.root)),
        ];
        if (left.length > 0) throw new Error(`Left over: ${JSON.stringify(left)}`);
      } finally {
        await rm(top, { recursive: true });
      }
    },
  };
}

/** Yields once at the beginning, and after every change in the directory. */
async function* changes(directory: string, signal: AbortSignal): AsyncGenerator<void> {
  const events = watch(directory, { signal });
  yield;
  for await (const _ of events) yield;
}
