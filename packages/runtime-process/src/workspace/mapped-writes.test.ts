import { chmod, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SealedCheckpoint } from '@torpor/engine';
import { sealed, unhurried } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { makeProcessWorld } from '../../testing/process-world.ts';

/** Maps a file and writes to it twice: at once, and on request. */
const PROGRAM = [
  'import mmap, os, time',
  'f = open("mapped", "r+b"); m = mmap.mmap(f.fileno(), 4096)',
  'm[0:1] = b"1"; print("ready", flush=True)',
  'while not os.path.exists("go"): time.sleep(0.01)',
  'm[0:1] = b"2"; open("done", "w").close(); time.sleep(1000)',
].join('\n');

describe('a write through a memory mapping from before the last checkpoint', () => {
  it.for([
    ['the usual file system', tmpdir()],
    ['tmpfs, which does not notice it', '/dev/shm'],
  ])('is in the next checkpoint, on %s', async ([, place = ''], { skip }) => {
    skip(!(await isDirectory(place)), `there is no ${place} here`);
    const top = await mkdtemp(join(place, 'torpor-m-'));
    await chmod(top, 0o711);
    const world = await makeProcessWorld({ instancesDir: join(top, 'i') });
    try {
      const instance = await world.started();
      const { exitCode } = await world.run(instance, 'command -v python3');
      skip(exitCode !== 0, 'needs a program that can map a file');
      await world.program.write(instance, 'program.py', PROGRAM);
      await world.run(instance, 'head -c 4096 /dev/zero > mapped');
      await world.begin(instance, 'exec python3 program.py');
      // Without this wait the file is too recent to be shared in any case.
      const age = async () => Date.now() - (await stat(join(world.home(instance), 'mapped'))).ctimeMs;
      await expect.poll(age).toBeGreaterThan(200);

      const first = await sealed(world, instance);
      await world.runtime.thaw(instance, first.id, unhurried);
      await world.program.write(instance, 'go', '');
      await expect.poll(() => world.program.read(instance, 'done')).toBe('');
      const second = await sealed(world, instance);

      expect(await Promise.all([first, second].map(firstByte))).toEqual(['1', '2']);
    } finally {
      await world.dispose();
      await rm(top, { recursive: true });
    }
  });
});

async function firstByte({ path }: SealedCheckpoint): Promise<string> {
  return (await readFile(join(path ?? '', 'workspace/mapped'), 'latin1')).slice(0, 1);
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
