import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { canMount, ManualClock, withReadonlyView, withSmallDisk } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { claimDataDirectory, type DataDirectory } from './data-directory.ts';

const MODULE = new URL('./data-directory.ts', import.meta.url).href;

describe('the data directory', () => {
  let parent: string;
  let path: string;
  const claimed: DataDirectory[] = [];

  beforeEach(async () => {
    parent = await mkdtemp(join(tmpdir(), 'torpor-data-'));
    path = join(parent, 'a', 'data');
  });
  afterEach(async () => {
    await Promise.all(claimed.splice(0).map((one) => one.release()));
    await rm(parent, { recursive: true });
  });

  async function claim(clock?: ManualClock) {
    const directory = await claimDataDirectory(path, clock);
    claimed.push(directory);
    return directory;
  }
  /** Starts another process that claims the directory and holds it until it is killed. */
  async function otherProcess() {
    const script = `import { claimDataDirectory } from ${JSON.stringify(MODULE)};
      await claimDataDirectory(process.argv[1]);
      process.stdout.write('claimed');
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', script, path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [answer] = await once(child.stdout, 'data');
    expect(String(answer)).toBe('claimed');
    return child;
  }

  it('is readable by its user alone', async () => {
    await claim();
    expect((await stat(path)).mode & 0o777).toBe(0o700);
    expect((await stat(join(path, 'lock.json'))).mode & 0o777).toBe(0o600);
  });

  it('names the process that holds it, and since when', async () => {
    await claim(new ManualClock(Date.UTC(2025, 0, 2)));
    const holder = JSON.parse(await readFile(join(path, 'lock.json'), 'utf8'));
    expect(holder).toMatchObject({ pid: process.pid, startedAt: Date.UTC(2025, 0, 2) });
    await expect(claim()).rejects.toMatchObject({
      code: 'in_use',
      message: expect.stringMatching(new RegExp(`${path}.* ${process.pid}, .*2025-01-02`)),
    });
  });

  it('is free again after its release, and keeps no record of the holder', async () => {
    const first = await claim();
    await first.release();
    await first.release();
    expect(await readdir(path)).not.toContain('lock.json');
    await claim();
  });

  it('is refused to a second process with the pid of the first, and is free after kill -9', async () => {
    const child = await otherProcess();
    await expect(claim()).rejects.toMatchObject({
      code: 'in_use',
      message: expect.stringContaining(`process ${child.pid}`),
    });
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(await readdir(path)).toContain('lock.json');
    await claim();
  });

  it('does not name a dead process as its holder', async () => {
    const child = await otherProcess();
    child.kill('SIGKILL');
    await once(child, 'exit');
    const stale = await readFile(join(path, 'lock.json'));
    await claim();
    await writeFile(join(path, 'lock.json'), stale);
    await expect(claim()).rejects.toMatchObject({ code: 'in_use', message: /in use by another process/ });
  });

  it.each([
    ['a file in its place', (at: string) => writeFile(at, '')],
    ['a link that leads nowhere in its place', (at: string) => symlink('/nowhere/at/all', at)],
  ])('cannot be claimed with %s', async (_, put) => {
    await mkdir(join(parent, 'a'));
    await put(path);
    await expect(claim()).rejects.toMatchObject({
      code: 'storage_readonly',
      message: expect.stringContaining(path),
    });
  });

  it('cannot be claimed below a file', async () => {
    await writeFile(join(parent, 'a'), '');
    await expect(claim()).rejects.toMatchObject({
      code: 'storage_readonly',
      message: expect.stringContaining(path),
    });
  });

  it('cannot be claimed when the lock file is something else', async () => {
    await mkdir(join(path, 'lock.db'), { recursive: true });
    await expect(claim()).rejects.toMatchObject({
      code: 'storage_readonly',
      message: expect.stringContaining(path),
    });
  });

  describe.skipIf(!canMount())('on a read-only or full disk', () => {
    const refused = async () => {
      await expect(claim()).rejects.toMatchObject({
        code: 'storage_readonly',
        message: expect.stringContaining(path),
      });
    };

    it('is refused when it was never used', async () => {
      const real = join(parent, 'real');
      await mkdir(real);
      path = join(parent, 'readonly');
      await withReadonlyView(real, path, refused);
    });

    it('is refused when it was used before, and stays free for others', async () => {
      await (await claim()).release();
      const real = path;
      path = join(parent, 'readonly');
      await withReadonlyView(real, path, refused);
      path = real;
      await claim();
    });

    it('is refused as full when there is no space', async () => {
      await withSmallDisk(path, 64, async () => {
        await writeFile(join(path, 'filler'), Buffer.alloc(65_536)).catch(() => undefined);
        await expect(claim()).rejects.toMatchObject({
          code: 'storage_full',
          message: expect.stringContaining(path),
        });
      });
    });
  });

  it.runIf(existsSync('/proc/self'))(
    'is refused at once where no directory can be made, such as in /proc',
    async () => {
      for (const path of ['/proc/torpor', '/proc/torpor/data']) {
        await expect(claimDataDirectory(path)).rejects.toMatchObject({ code: 'storage_readonly' });
      }
    },
  );
});
