/** Containers of the real runsc for tests, which fail when a process or a file of one is left over. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readlink, realpath, rm, watch } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type TinyBundle, writeTinyBundle } from '../src/host-checks/tiny-bundle.ts';
import { type Container, Runsc, type RunscOptions } from '../src/runsc/runsc.ts';
import { runscProcesses } from '../src/runsc/sentries.ts';
import { chosenRunsc } from './chosen-runsc.ts';

/** Not the one of the engine's tests: benchmarks run this too, without those. */
const unhurried = new AbortController().signal;

/** What the program inside says about itself: its memory is the same as long as `life` is. */
interface Count {
  readonly life: string;
  readonly count: number;
}

export interface RunscWorld {
  readonly top: string;
  readonly runsc: Runsc;
  readonly options: RunscOptions;
  /** A bundle whose program counts in memory and shows it; nothing runs yet. */
  counter(bundle?: Partial<TinyBundle>): Promise<Container>;
  started(): Promise<Container>;
  /** What the program shows, as soon as it is so. */
  count(container: Container, until: (count: Count) => boolean): Promise<Count>;
  dispose(): Promise<void>;
}

/**
 * It may sleep between any two of its lines and wake over another, empty `/shown`: so it holds no file open
 * there (what it shows is where a link points), and what it finds gone is made again at its next count.
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

/** The real program; undefined where tests of it have to be left out. */
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
  // A server makes it when it opens, and a restore that is begun ahead takes a lock in it.
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
    throw new Error('It never came to be so.');
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
          await runsc.end(container, unhurried);
          await runsc.forget(container.id);
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

/** Once at the beginning, and after everything that happens in the directory. */
async function* changes(directory: string, signal: AbortSignal): AsyncGenerator<void> {
  const events = watch(directory, { signal });
  yield;
  for await (const _ of events) yield;
}
