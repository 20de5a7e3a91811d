import { readdir, readFile, rename, rm, stat, truncate } from 'node:fs/promises';
import { getPriority } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { unhurried } from '@torpor/engine/testing';
import { sharedLauncher } from '@torpor/host';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { makeRunscWorld, type RunscWorld, usableRunsc } from '../../testing/runsc-world.ts';
import { withMount } from '../../testing/with-mount.ts';
import { Runsc } from './runsc.ts';
import { LOG_FILES } from './runsc-cli.ts';
import type { Container } from './runsc-container.ts';
import { runscProcesses } from './sentries.ts';

const program = await usableRunsc();
const nicely = (command: readonly string[]): readonly [string, ...string[]] => [
  'nice',
  '-n',
  '7',
  ...command,
];

describe.skipIf(program === undefined)('runsc', () => {
  let world: RunscWorld;
  let runsc: Runsc;
  let image: string;

  beforeEach(async () => {
    world = await makeRunscWorld(program ?? '');
    runsc = world.runsc;
    image = join(world.top, 'image');
  });

  afterEach(() => world.dispose());

  async function pidOf({ id }: Container): Promise<number> {
    const state = await runsc.state({ id }, unhurried);
    if (!('pid' in state)) throw new Error(`The container is ${state.is}.`);
    return state.pid;
  }

  describe('create and start', () => {
    it('create a container first and then run its program', async () => {
      const container = await world.counter();

      await runsc.create(container, unhurried);
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'created' });
      await runsc.start(container, unhurried);

      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
      expect((await world.count(container, () => true)).count).toBeGreaterThan(0);
    });

    it('keep what the program prints', async () => {
      const container = await world.started();

      expect(await readFile(join(container.logs, LOG_FILES.output), 'utf8')).toBe('counting\n');
    });

    it('refuse a name that exists, and leave its container running', async () => {
      const container = await world.started();

      await expect(runsc.create(container, unhurried)).rejects.toMatchObject({ code: 'conflict' });

      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
    });

    it('refuse to start twice', async () => {
      const container = await world.started();

      await expect(runsc.start(container, unhurried)).rejects.toMatchObject({ code: 'conflict' });
    });

    it('fail with the message of runsc, in one line', async () => {
      const container = await world.counter();
      await rm(join(container.bundle, 'config.json'));

      await expect(runsc.create(container, unhurried)).rejects.toMatchObject({
        code: 'internal',
        message: expect.stringMatching(/^runsc create failed: .*config\.json.*$/),
      });
    });

    it('run in the command that wraps them', async () => {
      const container = { ...(await world.counter()), wrapCreation: nicely };

      await runsc.run(container, unhurried);

      const stat = await readFile(`/proc/${await pidOf(container)}/stat`, 'utf8');
      expect(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16]).toBe(String(getPriority() + 7));
    });

    it('pass nothing of the environment of the server to the processes', async () => {
      process.env['TORPOR_API_KEY'] = 'secret';
      const container = await world.started();
      delete process.env['TORPOR_API_KEY'];

      const environment = await readFile(`/proc/${await pidOf(container)}/environ`, 'utf8');
      expect(environment).not.toContain('secret');
    });
  });

  describe('pause and resume', () => {
    it('stop a container and continue it with its memory', async () => {
      const container = await world.started();
      const before = await world.count(container, () => true);

      await runsc.freeze(container, unhurried);
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'frozen' });
      await runsc.thaw(container, unhurried);

      const after = await world.count(container, ({ count }) => count > before.count + 5);
      expect(after.life).toBe(before.life);
    });

    it('may be repeated', async () => {
      const { id } = await world.started();

      await runsc.freeze({ id }, unhurried);
      await runsc.freeze({ id }, unhurried);
      expect(await runsc.state({ id }, unhurried)).toMatchObject({ is: 'frozen' });
      await runsc.thaw({ id }, unhurried);
      await runsc.thaw({ id }, unhurried);
      expect(await runsc.state({ id }, unhurried)).toMatchObject({ is: 'running' });
    });
  });

  describe('a freeze whose end is not recorded', () => {
    const freezing = () => readdir(join(world.top, 'root'));
    const socketOf = ({ id }: Container) => join(world.top, 'root', `runsc-${id}.sock`);

    it('is noted, and ends when the caller says that the processes do not run', async () => {
      const container = await world.started();
      const { id } = container;
      const died = async () => {
        throw new Error('the server has died');
      };
      await expect(runsc.freeze(container, unhurried, died)).rejects.toThrow('the server has died');
      const before = await world.count(container, () => true);

      expect(await runsc.recordedState(id)).toMatchObject({ is: 'running' });
      expect(runsc.mayBeFrozen(id)).toBe(true);
      await expect(runsc.freeze(container, unhurried)).rejects.toMatchObject({ code: 'conflict' });
      await runsc.settleFreeze(id, false, unhurried);

      expect(runsc.mayBeFrozen(id)).toBe(false);
      await world.count(container, ({ count, life }) => life === before.life && count > before.count);
      await runsc.freeze(container, unhurried);
      await runsc.thaw(container, unhurried);
      await world.count(container, ({ count }) => count > before.count + 1);
    });

    it('leaves a container alone that the caller says is running', async () => {
      const container = await world.started();
      const { id } = container;
      await rename(socketOf(container), join(world.top, 'sock'));
      await expect(runsc.freeze(container, unhurried)).rejects.toMatchObject({ code: 'unreachable' });
      await rename(join(world.top, 'sock'), socketOf(container));

      expect(runsc.mayBeFrozen(id)).toBe(true);
      await runsc.settleFreeze(id, true, unhurried);

      const { count, life } = await world.count(container, () => true);
      await world.count(container, (now) => now.life === life && now.count > count);
      await runsc.freeze(container, unhurried);
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'frozen' });
    });

    it('leaves no note once the freeze is recorded, nor when the container is removed', async () => {
      const container = await world.started();
      await runsc.freeze(container, unhurried);
      expect((await freezing()).filter((name) => name.endsWith('.freezing'))).toEqual([]);
      await runsc.thaw(container, unhurried);
      await runsc.freeze(container, unhurried, () => Promise.reject(new Error('died'))).catch(() => {});
      await runsc.delete(container, unhurried);
      expect(await freezing()).toEqual([]);
    });
  });

  describe('a stopped sentry', () => {
    const processorTime = async (pid: number) => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
      const [user, system] = stat
        .slice(stat.lastIndexOf(')') + 2)
        .split(' ')
        .slice(11, 13)
        .map(Number);
      return (user ?? 0) + (system ?? 0);
    };

    const goOn = async ({ id }: Container) => {
      await runsc.continueSentry(id);
      await runsc.continueFrozen(id, unhurried);
    };

    it('takes no processor time, and its container goes on with its memory although an image was written', async () => {
      const container = await world.started();
      const pid = await pidOf(container);
      await runsc.freeze(container, unhurried);
      await runsc.writeImage(container, image, unhurried);
      const before = await world.count(container, () => true);

      expect(await runsc.stopFrozen(container.id)).toBe(true);
      await vi.waitFor(async () => expect(await readFile(`/proc/${pid}/stat`, 'utf8')).toContain(') T '));
      const spent = await processorTime(pid);
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(await processorTime(pid)).toBe(spent);
      expect(await world.count(container, () => true)).toEqual(before);

      await goOn(container);
      expect(await runsc.recordedState(container.id)).toEqual({ is: 'running', pid });
      expect(await runsc.state(container, unhurried)).toEqual({ is: 'running', pid });
      const after = await world.count(container, ({ count }) => count > before.count);
      expect(after.life).toBe(before.life);
    });

    it('can be stopped and continued again and again, between commands of runsc', async () => {
      const container = await world.started();
      for (let round = 0; round < 3; round++) {
        await runsc.freeze(container, unhurried);
        await runsc.stopFrozen(container.id);
        await goOn(container);
        const { count } = await world.count(container, () => true);
        await world.count(container, (now) => now.count > count);
      }
      await runsc.freeze(container, unhurried);
      await runsc.thaw(container, unhurried);
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
    });

    it('is not stopped while its container runs', async () => {
      const container = await world.started();

      expect(await runsc.stopFrozen(container.id)).toBe(false);

      const { count } = await world.count(container, () => true);
      await world.count(container, (now) => now.count > count);
    });

    it('can be ended', async () => {
      const container = await world.started();
      await runsc.freeze(container, unhurried);
      await runsc.stopFrozen(container.id);

      await runsc.killProcesses(container, unhurried);

      expect(await runsc.recordedState(container.id)).toEqual({ is: 'gone' });
      await expect(runsc.continueFrozen(container.id, unhurried)).rejects.toMatchObject({
        code: 'unreachable',
      });
    });
  });

  describe('checkpoint', () => {
    it('has about the size that was estimated before', async () => {
      const { id } = await world.started();
      await runsc.freeze({ id }, unhurried);
      const expected = (await runsc.memoryBytes(id)) ?? 0;
      await runsc.writeImage({ id }, image, unhurried);
      const { size } = await stat(join(image, 'pages.img'));
      expect(expected / size).toBeGreaterThanOrEqual(1);
      expect(expected / size).toBeLessThan(1.5);
      expect(await runsc.memoryBytes('nobody')).toBeUndefined();
    });

    it('leaves a paused container paused, and a resume continues it', async () => {
      const container = await world.started();
      await runsc.freeze(container, unhurried);
      const before = await world.count(container, () => true);

      await runsc.writeImage(container, image, unhurried);

      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'frozen' });
      await runsc.thaw(container, unhurried);
      const after = await world.count(container, ({ count }) => count > before.count);
      expect(after.life).toBe(before.life);
    });

    it('can be prepared while the container runs, and has the memory as of the freeze', async () => {
      const container = await world.started();
      runsc.prepareImage(container);
      runsc.prepareImage(container);
      await world.count(container, ({ count }) => count > 5);
      await runsc.freeze(container, unhurried);
      const saved = await world.count(container, () => true);

      await runsc.writeImage(container, image, unhurried);

      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'frozen' });
      await runsc.killProcesses(container, unhurried);
      const other = await world.counter();
      await runsc.restore(other, image, unhurried);
      const woken = await world.count(other, ({ count }) => count > saved.count);
      expect(woken.life).toBe(saved.life);
    });

    it('that was prepared and is not needed leaves the container to other commands', async () => {
      const container = await world.started();
      runsc.prepareImage(container);
      await runsc.cancelImage(container.id);
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
      runsc.prepareImage(container);
      await runsc.freeze(container, unhurried);
      await runsc.thaw(container, unhurried);
      runsc.prepareImage(container);
      await runsc.killProcesses(container, unhurried);
    });

    it('that was prepared does not keep a freeze from reporting a container that has ended', async () => {
      const container = await world.started();
      runsc.prepareImage(container);
      process.kill(
        await runsc.recordedState(container.id).then((found) => ('pid' in found ? found.pid : 0)),
        'SIGKILL',
      );
      await vi.waitFor(async () => expect(await runsc.recordedState(container.id)).toEqual({ is: 'gone' }));

      await expect(runsc.freeze(container, unhurried)).rejects.toMatchObject({ code: 'conflict' });
    });

    it('that was prepared is not made when the server dies', async () => {
      const container = await world.started();
      runsc.prepareImage(container);
      // The process that starts programs ends with the server.
      sharedLauncher.close();
      // Waits for the lock that the prepared command waits for too.
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
      expect(await readdir(container.bundle)).not.toContain('checkpoint-image');
    });

    it('reports a full disk, and the container goes on', async () => {
      const container = await world.started();
      await runsc.freeze(container, unhurried);
      const before = await world.count(container, () => true);

      await withMount(join(world.top, 'small'), ['-t', 'tmpfs', '-o', 'size=2m', 'none'], async () => {
        const full = join(world.top, 'small', 'image');
        await expect(runsc.writeImage(container, full, unhurried)).rejects.toMatchObject({
          code: 'storage_full',
        });

        await runsc.thaw(container, unhurried);
        await world.count(container, ({ count, life }) => life === before.life && count > before.count);
        // A recent sentry keeps the unfinished image open.
        await runsc.killProcesses(container, unhurried);
      });
    });
  });

  describe('restore', () => {
    let source: Container;
    let saved: { readonly life: string; readonly count: number };

    beforeEach(async () => {
      source = await world.started();
      await world.count(source, ({ count }) => count > 5);
      await runsc.freeze(source, unhurried);
      await runsc.writeImage(source, image, unhurried);
      saved = await world.count(source, () => true);
      await runsc.killProcesses(source, unhurried);
    });

    it('restores the memory into a created container', async () => {
      const container = await world.counter();
      await runsc.create(container, unhurried);

      await runsc.restore(container, image, unhurried);

      const now = await world.count(container, ({ count }) => count > saved.count);
      expect(now.life).toBe(saved.life);
      expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
    });

    it('restores the memory into new containers, twice from one image', async () => {
      const containers = [await world.counter(), await world.counter()];

      for (const container of containers) await runsc.restore(container, image, unhurried);

      for (const container of containers) {
        const now = await world.count(container, ({ count }) => count > saved.count);
        expect(now.life).toBe(saved.life);
      }
    });

    it('works with a read-only image', async () => {
      const container = await world.counter();

      await withMount(join(world.top, 'view'), ['-o', 'bind,ro', image], async () => {
        await runsc.restore(container, join(world.top, 'view'), unhurried);
        await world.count(container, ({ count }) => count > saved.count);
      });
    });

    it('reports a missing image', async () => {
      const container = await world.counter();

      await expect(runsc.restore(container, join(world.top, 'none'), unhurried)).rejects.toMatchObject({
        code: 'checkpoint_missing',
      });
    });

    it('fails with one line on a damaged image, and leaves nothing of a new container', async () => {
      const container = await world.counter();
      await truncate(join(image, 'checkpoint.img'), 10_000);

      await expect(runsc.restore(container, image, unhurried)).rejects.toMatchObject({
        code: 'internal',
        message: expect.stringMatching(/^runsc restore failed: .+$/),
      });

      expect(await runsc.state(container, unhurried)).toEqual({ is: 'absent' });
    });
  });

  describe('a prepared restore', () => {
    const isStopped = async ({ id }: Container) => {
      const found = await runsc.recordedState(id);
      if (!('pid' in found)) return false;
      return / \(.*\) T /.test(await readFile(`/proc/${found.pid}/stat`, 'utf8'));
    };

    it('waits without using the processor, and goes on when it gets its image', async () => {
      const [created, fresh] = [await world.counter(), await world.counter()];
      await runsc.create(created, unhurried);
      const preparedRestore = [await runsc.prepareRestore(created), await runsc.prepareRestore(fresh)];
      // The process handles the signal when it is scheduled next.
      await vi.waitFor(async () => expect(await isStopped(created)).toBe(true), { timeout: 10_000 });
      const source = await world.started();
      await runsc.freeze(source, unhurried);
      await runsc.writeImage(source, image, unhurried);
      const saved = await world.count(source, () => true);
      expect(preparedRestore.map(({ isWaiting }) => isWaiting)).toEqual([true, true]);

      for (const one of preparedRestore) await one.restore(image, unhurried);

      for (const container of [created, fresh]) {
        const now = await world.count(container, ({ count }) => count > saved.count);
        expect(now.life).toBe(saved.life);
        expect(await runsc.state(container, unhurried)).toMatchObject({ is: 'running' });
      }
    });

    it('ends with its container', async () => {
      const [created, fresh] = [await world.counter(), await world.counter()];
      await runsc.create(created, unhurried);
      const preparedRestore = [await runsc.prepareRestore(created), await runsc.prepareRestore(fresh)];

      for (const container of [created, fresh]) await runsc.killProcesses(container, unhurried);

      expect(preparedRestore.map(({ isWaiting }) => isWaiting)).toEqual([false, false]);
    });

    it('that hangs is a timeout, and not a refused image', async () => {
      const source = await world.started();
      await runsc.writeImage(source, image, unhurried);
      const hasty = new Runsc({ ...world.options, timeoutMs: 1 });
      const container = await world.counter();
      const preparedRestore = await hasty.prepareRestore(container);
      await expect(preparedRestore.restore(image, unhurried)).rejects.toMatchObject({ code: 'timeout' });
      expect(preparedRestore.isWaiting).toBe(false);
    });

    it('reports a missing image, and is killed when the caller aborts', async () => {
      const container = await world.counter();
      const preparedRestore = await runsc.prepareRestore(container);
      await expect(preparedRestore.restore(join(world.top, 'none'), unhurried)).rejects.toMatchObject({
        code: 'checkpoint_missing',
      });
      expect(preparedRestore.isWaiting).toBe(true);
      const source = await world.started();
      await runsc.writeImage(source, image, unhurried);

      const given = new AbortController();
      given.abort();
      await expect(preparedRestore.restore(image, given.signal)).rejects.toThrow('abort');

      expect(preparedRestore.isWaiting).toBe(false);
      expect(await runsc.recordedState(container.id)).toEqual({ is: 'absent' });
    });
  });

  describe('a container whose sentry was killed', () => {
    it('is gone, and its state can be deleted', async () => {
      const container = await world.started();
      const pid = await pidOf(container);

      process.kill(pid, 'SIGKILL');
      await runsc.killProcesses(container, unhurried);

      expect(await runsc.state(container, unhurried)).toEqual({ is: 'gone' });
      await expect(runsc.freeze(container, unhurried)).rejects.toMatchObject({ code: 'conflict' });
      await runsc.delete(container, unhurried);
      expect(await runsc.state(container, unhurried)).toEqual({ is: 'absent' });
    });

    it('has no gofer after it was ended', async () => {
      const container = await world.started();
      expect(await runscProcesses(world.options.root)).toHaveLength(2);

      await runsc.killProcesses(container, unhurried);

      expect(await runscProcesses(world.options.root)).toEqual([]);
    });
  });

  describe('a container whose sentry hangs', () => {
    it('does not delay the list, makes other calls time out, and can be ended', async () => {
      const container = await world.started();
      process.kill(await pidOf(container), 'SIGSTOP');
      const impatient = new Runsc({ ...world.options, timeoutMs: 500 });

      expect(await impatient.list()).toEqual([container.id]);
      await expect(impatient.state(container, unhurried)).rejects.toMatchObject({ code: 'timeout' });

      await runsc.killProcesses(container, unhurried);
      expect(await runscProcesses(world.options.root)).toEqual([]);
    });
  });

  describe('recordedState', () => {
    it('agrees with the sentry, also while runsc writes the state', async () => {
      const { id } = await world.started();
      const seen = new Set<string>();
      let isOver = false;
      const looking = (async () => {
        for (; !isOver; await setImmediate()) seen.add((await runsc.recordedState(id)).is);
      })();

      for (let round = 0; round < 5; round++) {
        await runsc.freeze({ id }, unhurried);
        expect(await runsc.recordedState(id)).toEqual(await runsc.state({ id }, unhurried));
        await runsc.thaw({ id }, unhurried);
        expect(await runsc.recordedState(id)).toEqual(await runsc.state({ id }, unhurried));
      }

      isOver = true;
      await looking;
      expect([...seen].sort()).toEqual(['frozen', 'running']);
    });

    it('distinguishes a dead container from one that never existed', async () => {
      const container = await world.started();

      await runsc.killProcesses(container, unhurried);

      expect(await runsc.recordedState(container.id)).toEqual({ is: 'gone' });
      await runsc.deleteState(container.id);
      expect(await runsc.recordedState(container.id)).toEqual({ is: 'absent' });
      expect(await runsc.list()).toEqual([]);
    });
  });

  describe('kill', () => {
    it('signals the first process', async () => {
      const container = await world.started();

      await runsc.kill(container, 'KILL', unhurried);
      await runsc.killProcesses(container, unhurried);

      expect(await runsc.state(container, unhurried)).toEqual({ is: 'gone' });
    });
  });

  describe('an unknown container', () => {
    it('is absent, and deleting it is fine', async () => {
      expect(await runsc.state({ id: 'nobody' }, unhurried)).toEqual({ is: 'absent' });
      await runsc.delete({ id: 'nobody', bundle: '/nowhere' }, unhurried);
      expect(await runsc.list()).toEqual([]);
    });

    it.each(['pause', 'resume', 'kill', 'checkpoint'] as const)('is not found by %s', async (verb) => {
      const asked = {
        pause: () => runsc.freeze({ id: 'nobody' }, unhurried),
        resume: () => runsc.thaw({ id: 'nobody' }, unhurried),
        kill: () => runsc.kill({ id: 'nobody' }, 'TERM', unhurried),
        checkpoint: () => runsc.writeImage({ id: 'nobody' }, image, unhurried),
      }[verb]();

      await expect(asked).rejects.toMatchObject({ code: 'not_found' });
    });
  });

  describe('delete', () => {
    it('ends a container that runsc has forgotten', async () => {
      const container = await world.started();
      const { root } = world.options;
      await rm(join(root, `${container.id}_sandbox:${container.id}.state`));
      expect(await runsc.state(container, unhurried)).toEqual({ is: 'absent' });
      expect(await runsc.list()).toEqual([container.id]);

      await runsc.delete(container, unhurried);

      expect(await runscProcesses(root)).toEqual([]);
      expect(await runsc.list()).toEqual([]);
    });

    it('cleans up after an aborted creation', async () => {
      const container = await world.counter();
      const abort = new AbortController();
      const creating = runsc.create(container, abort.signal);
      while ((await readdir(world.options.root).catch(() => [])).length === 0) await setImmediate();
      abort.abort();
      // On a busy host the creation may have finished all the same.
      await Promise.allSettled([creating]);

      await runsc.delete(container, unhurried);

      expect(await runsc.list()).toEqual([]);
      await runsc.create(container, unhurried);
    });
  });
});
