import { appendFile, chmod, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Code, type ConnectError } from '@connectrpc/connect';
import { type AgentClient, EventType, type FilesystemEvent } from '@torpor/envd';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

let agent: RunningAgent;
let files: AgentClient['filesystem'];
let directory = '';
let count = 0;
let stop: AbortController;

beforeAll(async () => {
  agent = await runAgent();
  files = agent.client.filesystem;
});

beforeEach(async () => {
  count += 1;
  directory = join(agent.directory, String(count));
  await mkdir(directory);
  stop = new AbortController();
});

afterEach(() => stop.abort());
afterAll(() => agent.stop());

const at = (...names: string[]) => join(directory, ...names);
const CODES = { create: 1, write: 2, remove: 3, rename: 4, chmod: 5 } as const;
const textOf = ({ type, name }: FilesystemEvent) =>
  `${Object.entries(CODES).find(([, code]) => code === type)?.[0] ?? EventType[type]} ${name}`;

interface Watch {
  /** Reads until this event, and returns all events up to it. */
  until(last: string): Promise<string[]>;
  entryOf(last: string): Promise<FilesystemEvent['entry']>;
}

async function watch(options: { recursive?: boolean; includeEntry?: boolean } = {}): Promise<Watch> {
  const stream = files
    .watchDir({ path: directory, ...options }, { signal: stop.signal })
    [Symbol.asyncIterator]();
  const first = await stream.next();
  expect(first.value?.event.case).toBe('start');
  const read = async (last: string): Promise<FilesystemEvent[]> => {
    const events: FilesystemEvent[] = [];
    for (;;) {
      const { value } = await stream.next();
      if (value?.event.case !== 'filesystem') continue;
      events.push(value.event.value);
      if (textOf(value.event.value) === last) return events;
    }
  };
  return {
    until: async (last) => (await read(last)).map(textOf),
    entryOf: async (last) => (await read(last)).at(-1)?.entry,
  };
}

describe('WatchDir', () => {
  it('reports create, write, chmod and remove', async () => {
    const events = await watch();
    await writeFile(at('empty'), '');
    await events.until('create empty');
    await appendFile(at('empty'), 'x');
    expect(await events.until('write empty')).toEqual(['write empty']);
    await chmod(at('empty'), 0o600);
    expect(await events.until('chmod empty')).toEqual(['chmod empty']);
    await rm(at('empty'));
    expect(await events.until('remove empty')).toEqual(['remove empty']);
  });

  it('reports both names of a move', async () => {
    await writeFile(at('old'), 'x');
    const events = await watch();
    await rename(at('old'), at('new'));
    expect(await events.until('create new')).toEqual(['rename old', 'create new']);
  });

  it('reports an upload as E2B does: create, chmod and write', async () => {
    await writeFile(at('old'), 'x');
    const events = await watch();
    await agent.client.files.write(at('old'), 'more');
    expect(await events.until('write old')).toEqual(['chmod old', 'write old']);
    await agent.client.files.write(at('new'), 'more');
    expect(await events.until('write new')).toEqual(['create new', 'chmod new', 'write new']);
    await agent.client.files.write(at('empty'), '');
    expect(await events.until('chmod empty')).toEqual(['create empty', 'chmod empty']);
  });

  it('does not watch subdirectories by default', async () => {
    await mkdir(at('sub'));
    const events = await watch();
    await writeFile(at('sub', 'hidden'), 'x');
    await writeFile(at('shown'), '');
    expect(await events.until('create shown')).toEqual(['create shown']);
  });

  it('watches subdirectories on request, also those created later', async () => {
    await mkdir(at('old', 'deep'), { recursive: true });
    const events = await watch({ recursive: true });
    await writeFile(at('old', 'deep', 'a'), '');
    expect(await events.until('create old/deep/a')).toEqual(['create old/deep/a']);
    await mkdir(at('new', 'deep'), { recursive: true });
    await writeFile(at('new', 'deep', 'b'), 'x');
    expect(await events.until('write new/deep/b')).toEqual([
      'create new',
      'create new/deep',
      'create new/deep/b',
      'write new/deep/b',
    ]);
    await rm(at('new'), { recursive: true });
    expect((await events.until('remove new')).toSorted()).toEqual([
      'remove new',
      'remove new/deep',
      'remove new/deep/b',
    ]);
  });

  it('keeps watching a directory that is moved', async () => {
    await mkdir(at('before'));
    const events = await watch({ recursive: true });
    await rename(at('before'), at('after'));
    await events.until('create after');
    await writeFile(at('after', 'a'), '');
    expect(await events.until('create after/a')).toEqual(['create after/a']);
  });

  it('includes the entry on request', async () => {
    const events = await watch({ includeEntry: true });
    await writeFile(at('a'), 'hello');
    expect(await events.entryOf('write a')).toMatchObject({ name: 'a', path: at('a'), size: 5n });
    await rm(at('a'));
    expect(await events.entryOf('remove a')).toBeUndefined();
  });

  it('loses no event of a burst', async () => {
    const events = await watch({ recursive: true });
    const names = Array.from({ length: 300 }, (_, index) => `f${index}`);
    await Promise.all(names.map((name) => writeFile(at(name), '')));
    await writeFile(at('zzz-last'), '');
    const seen = new Set(await events.until('create zzz-last'));
    expect(names.filter((name) => !seen.has(`create ${name}`))).toEqual([]);
  });

  it('ends with not_found when the directory is removed', async () => {
    const events = await watch();
    await rm(directory, { recursive: true });
    await expect(events.until('never')).rejects.toMatchObject({ code: Code.NotFound });
  });

  it('refuses a path that cannot be watched', async () => {
    await writeFile(at('file'), '');
    const codeOf = async (path: string) => {
      for await (const _ of files.watchDir({ path }));
    };
    const code = (path: string) => codeOf(path).catch((thrown: ConnectError) => thrown.code);
    expect(await code(at('missing'))).toBe(Code.NotFound);
    expect(await code(at('file'))).toBe(Code.InvalidArgument);
  });

  it('sends keepalive messages', async () => {
    const headers = { 'keepalive-ping-interval': '1' };
    const seen: (string | undefined)[] = [];
    for await (const { event } of files.watchDir({ path: directory }, { headers })) {
      seen.push(event.case);
      if (event.case === 'keepalive') break;
    }
    expect(seen).toEqual(['start', 'keepalive']);
  });
});

describe('a polled watcher', () => {
  const create = async (recursive = false) => {
    const { watcherId } = await files.createWatcher({ path: directory, recursive });
    return {
      watcherId,
      taken: async () => (await files.getWatcherEvents({ watcherId })).events.map(textOf),
    };
  };

  it('keeps events until they are polled, and is gone when it is removed', async () => {
    const { watcherId, taken } = await create();
    await writeFile(at('a'), 'x');
    expect(await taken()).toEqual(['create a', 'write a']);
    expect(await taken()).toEqual([]);
    await files.removeWatcher({ watcherId });
    await expect(files.getWatcherEvents({ watcherId })).rejects.toMatchObject({ code: Code.NotFound });
    await expect(files.removeWatcher({ watcherId })).rejects.toMatchObject({ code: Code.NotFound });
  });

  it('has the events of an operation of the agent when that is answered', async () => {
    const { taken } = await create();
    const { write } = agent.client.files;
    await write(at('a'), 'x');
    expect(await taken()).toEqual(['create a', 'chmod a', 'write a']);
    await write(at('a'), 'y');
    expect(await taken()).toEqual(['chmod a', 'write a']);
    await files.makeDir({ path: at('dir') });
    expect(await taken()).toEqual(['create dir', 'chmod dir']);
    await files.move({ source: at('a'), destination: at('b') });
    expect(await taken()).toEqual(['rename a', 'create b']);
    await files.remove({ path: at('b') });
    expect(await taken()).toEqual(['remove b']);
  });

  it('has the events of operations below it, with the directories that they create', async () => {
    const { taken } = await create(true);
    await agent.client.files.write(at('a', 'b', 'c'), 'x');
    expect(await taken()).toEqual([
      ...['create a', 'chmod a', 'create a/b', 'chmod a/b'],
      ...['create a/b/c', 'chmod a/b/c', 'write a/b/c'],
    ]);
    await files.remove({ path: at('a') });
    expect((await taken()).toSorted()).toEqual(['remove a', 'remove a/b', 'remove a/b/c']);
  });

  it('has the events of operations under another name of the directory', async () => {
    await mkdir(at('real'));
    await symlink('real', at('alias'));
    const { watcherId } = await files.createWatcher({ path: at('alias') });
    await agent.client.files.write(at('real', 'a'), 'x');
    const { events } = await files.getWatcherEvents({ watcherId });
    expect(events.map(textOf)).toEqual(['create a', 'chmod a', 'write a']);
  });

  it('reports what programs do to files: content, mode and both', async () => {
    const { taken } = await create();
    const run = (command: string) =>
      transcribe(agent.client.process.start({ process: { ...shell(command), cwd: directory } }));
    await run('echo x > written');
    expect(await taken()).toEqual(['create written', 'write written']);
    await run('touch touched');
    expect(await taken()).toEqual(['create touched', 'chmod touched']);
    await run('echo y >> written; chmod 640 written');
    expect(await taken()).toEqual(['write written', 'chmod written']);
    await run('chmod 640 written');
    expect(await taken()).toEqual(['chmod written']);
    // A write and a chmod within one tick of the kernel's clock look like a write.
    await run('cp written copied; sleep 0.02; chmod 700 copied');
    expect(await taken()).toEqual(['create copied', 'write copied', 'chmod copied']);
  });

  it('reports each of many operations once, whenever the kernel reports them', async () => {
    const { taken } = await create(true);
    const names = Array.from({ length: 50 }, (_, index) => `f${index}`);
    await Promise.all(names.map((name) => agent.client.files.write(at(name), 'x')));
    const events = await taken();
    expect(events.toSorted()).toEqual(
      names.flatMap((name) => [`create ${name}`, `chmod ${name}`, `write ${name}`]).toSorted(),
    );
  });
});
