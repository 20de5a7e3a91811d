/** What must hold for a paused sandbox that stays in memory, rule by rule. */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Instance, SealedCheckpoint } from '@torpor/engine';
import { listedInstances, NO_SPEC, nextOf, sealed, startFrom, unhurried } from '@torpor/engine/testing';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import {
  afterAll,
  afterEach,
  beforeAll,
  it as declare,
  describe,
  expect,
  type TestContext,
  vi,
} from 'vitest';
import { needsOf } from '../src/checkpoint-needs.ts';
import { findCgroups } from '../src/container/cgroups.ts';
import { runscProcesses } from '../src/runsc/sentries.ts';
import { type GvisorWorld, makeGvisorWorld } from './gvisor-world.ts';

const run = promisify(execFile);

/** The limit on the memory of all sandboxes of a server. */
function memoryOfAll(tag: string, version: 'v1' | 'v2') {
  const group = join('/sys/fs/cgroup', ...(version === 'v1' ? ['memory'] : []), `torpor-${tag}`);
  const [limit, usage, none] =
    version === 'v1'
      ? ['memory.limit_in_bytes', 'memory.usage_in_bytes', '-1']
      : ['memory.max', 'memory.current', 'max'];
  const read = (file: string) => readFile(join(group, file), 'utf8');
  return {
    /** Sets the limit so close to what is used that a cache must go. */
    squeeze: async () => {
      // The kernel drops cached files to make room.
      const name = version === 'v1' ? 'total_inactive_file' : 'inactive_file';
      const cached = Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(await read('memory.stat'))?.[1] ?? 0);
      await writeFile(join(group, limit), String(Math.ceil((Number(await read(usage)) - cached) * 1.05)));
    },
    lift: () => writeFile(join(group, limit), none),
  };
}

/** `only` names the rules of the short form. */
export function describeWarmSleep(only?: readonly string[]): void {
  let world: GvisorWorld;
  const it = (rule: string, test: (context: TestContext) => Promise<void>) =>
    declare.skipIf(only?.includes(rule) === false)(rule, test);

  beforeAll(async () => {
    world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 1 });
  }, 120_000);
  afterEach(() => world.dispose());
  afterAll(() => world?.close(), 60_000);

  const FILE = '/home/user/a';

  /** Seals the instance and gives it up, as a pause does. */
  async function slept(instance: Instance): Promise<SealedCheckpoint> {
    const checkpoint = await sealed(world, instance, 'memory');
    await world.runtime.destroy(instance, unhurried, checkpoint.id);
    return checkpoint;
  }

  async function asleep(): Promise<{ instance: Instance; next: Instance; checkpoint: SealedCheckpoint }> {
    const instance = await world.started();
    await world.program.write(instance, FILE, 'a');
    const checkpoint = await slept(instance);
    return { instance, next: nextOf(instance), checkpoint };
  }

  const isWarm = ({ sandboxId }: Instance, { id }: SealedCheckpoint) =>
    world.runtime.warmth?.(sandboxId, id).warm;
  const pidsOf = async (container: string) => {
    const root = join('/run/torpor', container.slice(0, 6), 'runsc');
    return (await runscProcesses(root))
      .filter((found) => found.container === container)
      .map(({ pid }) => pid);
  };
  const layersOnDisk = () => readdir(join(world.dataDir, 'checkpoints', 'layers'));
  const wake = (instance: Instance, checkpoint: SealedCheckpoint) =>
    startFrom(world, instance, checkpoint, 'memory');

  it('is stopped, hidden from the engine, and goes on as the next generation with memory and files', async () => {
    const { instance, next, checkpoint } = await asleep();
    const { container } = world.recordOf(instance);
    const [pid] = await pidsOf(container.id);
    // The kernel stops the threads of a process one after the other.
    await expect.poll(() => readFile(`/proc/${pid}/stat`, 'utf8')).toContain(') T ');
    expect(isWarm(instance, checkpoint)).toBe(true);
    expect(await listedInstances(world.runtime)).toEqual([]);

    await world.runtime.destroy(instance, unhurried, checkpoint.id);
    expect(await wake(next, checkpoint)).toEqual({ mode: 'memory', lost: [], adopted: true });

    expect(await pidsOf(container.id)).toEqual([pid]);
    expect(world.recordOf(next).container.id).toBe(container.id);
    expect(await listedInstances(world.runtime)).toEqual([next]);
    expect(await world.runtime.observe(next, unhurried)).toEqual({ is: 'running' });
    expect(await world.program.counter?.(next)).toBe(1);
    expect(await world.program.read(next, FILE)).toBe('a');
    expect(isWarm(next, checkpoint)).toBe(false);
  });

  it('gets a new token, a new credential, the environment and the network of the new generation, and the time', async () => {
    const { instance, next, checkpoint } = await asleep();
    const before = world.recordOf(instance);
    const network = { mode: 'none' } as const;
    await startFrom(world, next, checkpoint, 'memory', { ...NO_SPEC, env: { WOKEN: 'yes' }, network });
    const after = world.recordOf(next);
    expect(after.token).not.toBe(before.token);
    expect(after.credential).not.toBe(before.credential);
    expect(after.network).toEqual(network);
    expect((await world.run(next, 'echo $WOKEN')).output).toBe('yes\n');
    const inside = Number((await world.run(next, 'date +%s%3N')).output);
    expect(Math.abs(inside - Date.now())).toBeLessThan(2_000);
  });

  it('never writes into the sealed layer, and its checkpoint can be restored afterwards', async () => {
    const { instance, next, checkpoint } = await asleep();
    await wake(next, checkpoint);
    await world.program.write(next, FILE, 'changed');
    await world.program.write(next, '/home/user/new', 'new');
    const [top] = needsOf(checkpoint).layers;
    expect(top?.id).not.toBe(world.recordOf(next).upper);
    await world.runtime.destroy(next, unhurried);

    const again = nextOf(next);
    await wake(again, checkpoint);
    expect(await world.program.counter?.(again)).toBe(1);
    expect(await world.program.read(again, FILE)).toBe('a');
    expect(await world.program.read(again, '/home/user/new')).toBeUndefined();
    expect(instance.generation).toBe(1);
  });

  it('sleeps and wakes again and again over the same lower layers, each time with a complete checkpoint', async () => {
    let instance = await world.started();
    const { lower } = world.recordOf(instance);
    let checkpoint: SealedCheckpoint | undefined;
    for (let round = 1; round <= 4; round++) {
      await world.program.write(instance, `/home/user/${round}`, String(round));
      checkpoint = await slept(instance);
      instance = nextOf(instance);
      await wake(instance, checkpoint);
      expect(needsOf(checkpoint).layers).toHaveLength(lower.length + 1);
    }
    await world.runtime.destroy(instance, unhurried);
    instance = nextOf(instance);
    await wake(instance, checkpoint as SealedCheckpoint);
    expect(await world.program.counter?.(instance)).toBe(4);
    for (const round of [1, 2, 3, 4])
      expect(await world.program.read(instance, `/home/user/${round}`)).toBe(String(round));
  });

  it('is ended by a kill, and nothing of it is left', async () => {
    const before = await layersOnDisk();
    const { instance, checkpoint } = await asleep();
    const { container, upper } = world.recordOf(instance);
    await world.runtime.destroy(instance, unhurried);
    expect(await pidsOf(container.id)).toEqual([]);
    expect(isWarm(instance, checkpoint)).toBe(false);
    expect(await layersOnDisk()).not.toContain(upper);
    await world.runtime.discard(checkpoint, unhurried);
    await world.store.remove(checkpoint.id);
    expect(await layersOnDisk()).toEqual(expect.arrayContaining(before));
  });

  it('takes the layers with it whose checkpoints were removed while it had them mounted', async () => {
    const first = await asleep();
    await world.runtime.destroy(first.instance, unhurried);
    await wake(first.next, first.checkpoint);
    const second = await slept(first.next);
    const [mounted] = needsOf(first.checkpoint).layers;
    for (const { id } of [first.checkpoint, second]) await world.store.remove(id);
    expect(isWarm(first.next, second)).toBe(true);
    expect(await layersOnDisk()).toContain(mounted?.id);
    await world.runtime.destroy(first.next, unhurried);
    expect(await layersOnDisk()).not.toContain(mounted?.id);
  });

  it('is ended by a start from files, and by a start from another checkpoint', async () => {
    const first = await asleep();
    const ofFirst = world.recordOf(first.instance).container.id;
    await startFrom(world, first.next, first.checkpoint, 'files');
    expect(await pidsOf(ofFirst)).toEqual([]);
    expect(await world.program.read(first.next, FILE)).toBe('a');

    const second = await asleep();
    const ofSecond = world.recordOf(second.instance).container.id;
    await world.runtime.destroy(second.instance, unhurried, first.checkpoint.id);
    expect(await pidsOf(ofSecond)).toEqual([]);
  });

  it('stays in memory while a fork of its checkpoint runs', async () => {
    const { instance, next, checkpoint } = await asleep();
    const child = await world.started({}, checkpoint);
    await world.program.write(child, FILE, 'of the child');
    expect(isWarm(instance, checkpoint)).toBe(true);
    await wake(next, checkpoint);
    expect(await world.program.read(next, FILE)).toBe('a');
    expect(await world.program.counter?.(next)).toBe(1);
    expect(await world.program.counter?.(child)).toBe(2);
  });

  it('is restored from its checkpoint by the same start when its sentry has died', async () => {
    const { instance, next, checkpoint } = await asleep();
    await world.kill(instance);
    await wake(next, checkpoint);
    expect(await world.program.counter?.(next)).toBe(1);
    expect(await world.program.read(next, FILE)).toBe('a');
    expect(await listedInstances(world.runtime)).toEqual([next]);
  });

  it('whose agent does not answer is given up, and its checkpoint is restored by the same start', async () => {
    const { instance, next, checkpoint } = await asleep();
    const { container } = world.recordOf(instance);
    // Everything that the server sends to the sandbox is lost from now on.
    await run('nsenter', [`--net=${container.netns}`, 'ip', 'link', 'set', 'eth0', 'down']);
    expect(await wake(next, checkpoint)).toEqual({ mode: 'memory', lost: [] });
    expect(world.recordOf(next).container.id).not.toBe(container.id);
    expect(await world.program.counter?.(next)).toBe(1);
    expect(await world.program.read(next, FILE)).toBe('a');
  });

  it('says why it is not in memory when it died before it could be kept', async () => {
    const instance = await world.started();
    const checkpoint = await sealed(world, instance, 'memory');
    await world.kill(instance);
    await world.runtime.destroy(instance, unhurried, checkpoint.id);
    expect(world.runtime.warmth?.(instance.sandboxId, checkpoint.id)).toEqual({
      warm: false,
      why: 'its processes have ended',
    });
  });

  it('with too many changed files is destroyed, says why, and is warm again after the next wake', async () => {
    const instance = await world.started();
    await world.run(instance, 'mkdir /tmp/many; cd /tmp/many; for i in $(seq 1100); do : > $i; done');
    const checkpoint = await slept(instance);
    expect(world.runtime.warmth?.(instance.sandboxId, checkpoint.id)).toEqual({
      warm: false,
      why: expect.stringMatching(/^it has changed 11\d\d files and directories/),
    });
    const next = nextOf(instance);
    await wake(next, checkpoint);
    const after = await slept(next);
    expect(isWarm(next, after)).toBe(true);
  });

  it('with too many bytes is destroyed and says why', async () => {
    const instance = await world.started();
    await world.run(instance, 'head -c 70M /dev/urandom > /tmp/large');
    const checkpoint = await slept(instance);
    const isCopied = await world.store.layerStore.layers.sharesBlocks();
    expect(isWarm(instance, checkpoint)).toBe(isCopied);
    if (!isCopied)
      expect(world.runtime.warmth?.(instance.sandboxId, checkpoint.id)).toMatchObject({
        why: expect.stringMatching(/^it has written 7\d MB/),
      });
  });

  it('goes on when its checkpoint was sealed but not committed, and its next checkpoint is complete', async () => {
    const instance = await world.started();
    await world.program.write(instance, FILE, 'a');
    const undone = await sealed(world, instance, 'memory');
    await world.runtime.thaw(instance, null, unhurried);
    await world.program.write(instance, FILE, 'b');
    await world.store.remove(undone.id);
    const checkpoint = await slept(instance);
    const next = nextOf(instance);
    await wake(next, checkpoint);
    expect(await world.program.counter?.(next)).toBe(2);
    expect(await world.program.read(next, FILE)).toBe('b');
  });

  it('goes first when the control group of all sandboxes runs short of memory, and no running sandbox is hurt', async ({
    skip,
  }) => {
    const host = await findCgroups();
    skip(host?.controllers.includes('memory') !== true, 'there is no memory controller');
    const running = await world.started();
    const { instance, next, checkpoint } = await asleep();
    const { container } = world.recordOf(instance);
    const memory = memoryOfAll(container.id.slice(0, 6), host?.version ?? 'v1');
    try {
      // The memory images of earlier tests may go before it, one after the other.
      const isGone = async () => (await pidsOf(container.id)).length === 0;
      for (let tries = 0; tries < 60 && !(await isGone()); tries++) {
        await memory.squeeze();
        await vi.waitFor(async () => expect(await isGone()).toBe(true), { timeout: 700 }).catch(() => {});
      }
      expect(world.runtime.warmth?.(instance.sandboxId, checkpoint.id)).toEqual({
        warm: false,
        why: 'its memory was needed',
      });
      expect((await world.run(running, 'echo well')).output).toBe('well\n');
    } finally {
      await memory.lift();
    }
    await wake(next, checkpoint);
    expect(await world.program.counter?.(next)).toBe(1);
  });

  describe('over a restart of the server', () => {
    it('is ended by a server that stops, and its checkpoint is restored', async () => {
      const { instance, next, checkpoint } = await asleep();
      const { container } = world.recordOf(instance);
      await world.reopen();
      expect(await pidsOf(container.id)).toEqual([]);
      await wake(next, checkpoint);
      expect(await world.program.counter?.(next)).toBe(1);
    });

    it('is found again, stopped, after its server was killed, and goes on', async () => {
      const instance = await world.started();
      await world.program.write(instance, FILE, 'a');
      const checkpoint = await sealed(world, instance, 'memory');
      const { container } = world.recordOf(instance);
      for (const pid of await pidsOf(container.id)) process.kill(pid, 'SIGSTOP');
      await world.reopen();
      expect(await listedInstances(world.runtime)).toEqual([instance]);
      expect(isWarm(instance, checkpoint)).toBe(true);
      await world.runtime.destroy(instance, unhurried, checkpoint.id);
      expect(await listedInstances(world.runtime)).toEqual([]);
      const next = nextOf(instance);
      await wake(next, checkpoint);
      expect(world.recordOf(next).container.id).toBe(container.id);
      expect(await world.program.counter?.(next)).toBe(1);
    });

    /** Wakes the sandbox; then, as after a crash in the middle of that, the record of the last generation is still there. */
    async function wokenWithBothRecords() {
      const { instance, next, checkpoint } = await asleep();
      const directory = join(world.dataDir, 'gvisor', 'instances', instance.sandboxId, '1');
      const written = await readFile(join(directory, 'instance.json'), 'utf8');
      await wake(next, checkpoint);
      await world.program.write(next, FILE, 'after the wake');
      await world.whileClosed(async () => {
        await mkdir(directory);
        await writeFile(join(directory, 'instance.json'), written);
      });
      expect(await listedInstances(world.runtime)).toEqual([instance, next]);
      return { instance, next, checkpoint };
    }

    it('is destroyed when its server was killed in the middle of the adoption, and its checkpoint is restored', async () => {
      const { next, checkpoint } = await wokenWithBothRecords();
      const { container } = world.recordOf(next);
      // The engine starts again, under a new generation.
      await world.runtime.destroy(next, unhurried, checkpoint.id);
      expect(await pidsOf(container.id)).toEqual([]);
      expect(await listedInstances(world.runtime)).toEqual([]);
      const third = nextOf(next);
      await wake(third, checkpoint);
      expect(await world.program.counter?.(third)).toBe(1);
      expect(await world.program.read(third, FILE)).toBe('a');
    });

    it('keeps its container when the record of its new generation is damaged and its last generation is destroyed', async () => {
      const { instance, next } = await wokenWithBothRecords();
      const { container } = world.recordOf(next);
      const record = join(world.dataDir, 'gvisor', 'instances', next.sandboxId, '2', 'instance.json');
      const written = await readFile(record, 'utf8');
      await world.whileClosed(() => writeFile(record, 'damaged'));
      await world.runtime.destroy(instance, unhurried);
      expect(await pidsOf(container.id)).not.toEqual([]);
      await world.whileClosed(() => writeFile(record, written));
      expect(await world.program.read(next, FILE)).toBe('after the wake');
    });

    it('keeps its container and its files when the generation before the adoption is destroyed', async () => {
      const { instance, next } = await wokenWithBothRecords();
      await world.runtime.destroy(instance, unhurried);
      expect(await listedInstances(world.runtime)).toEqual([next]);
      expect(await world.program.counter?.(next)).toBe(2);
      expect(await world.program.read(next, FILE)).toBe('after the wake');
    });
  });

  it('does not stay in memory when the operator does not want it, and says why', async () => {
    const settings = { ...DEFAULT_RUNTIME_SETTINGS, warmKeepMs: 0 };
    const world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 0, settings });
    try {
      const instance = await world.started();
      await world.program.write(instance, '/home/user/a', 'a');
      const { container, upper } = world.recordOf(instance);
      const checkpoint = await sealed(world, instance, 'memory');
      expect(needsOf(checkpoint).layers[0]?.id).toBe(upper);
      await world.runtime.destroy(instance, unhurried, checkpoint.id);
      expect(world.runtime.warmth?.(instance.sandboxId, checkpoint.id)).toMatchObject({
        warm: false,
        why: expect.stringContaining('warmKeepMs is 0'),
      });
      const next = nextOf(instance);
      await startFrom(world, next, checkpoint, 'memory');
      expect(world.recordOf(next).container.id).not.toBe(container.id);
      expect(await world.program.counter?.(next)).toBe(1);
      await world.dispose();
    } finally {
      await world.close();
    }
  });
}
