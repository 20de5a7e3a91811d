import { readSync, writeSync } from 'node:fs';
import { readdir, readlink } from 'node:fs/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { closePipes, type PipeSet, ShellPipes } from './shell-pipes.ts';

const PATIENT = { timeout: 20_000 };

const open: PipeSet[] = [];
let pipes: ShellPipes | undefined;

afterEach(async () => {
  for (const set of open.splice(0)) closePipes(set);
  await pipes?.close();
});

async function take(maker: ShellPipes): Promise<PipeSet | undefined> {
  const set = await maker.take();
  if (set !== undefined) open.push(set);
  return set;
}

describe('pipes made by a shell', () => {
  it('are three pipes with two ends each', async () => {
    pipes = new ShellPipes();
    const set = await take(pipes);
    const links = await Promise.all(
      Object.values(set ?? {}).map(({ readFd }) => readlink(`/proc/self/fd/${readFd}`)),
    );
    expect(new Set(links).size).toBe(3);
    for (const link of links) expect(link).toMatch(/^pipe:/);
    for (const { readFd, writeFd } of Object.values(set ?? {})) {
      writeSync(writeFd, 'through');
      const bytes = Buffer.alloc(7);
      readSync(readFd, bytes);
      expect(bytes.toString()).toBe('through');
    }
  });

  it('are new for each caller, also for concurrent ones', async () => {
    const maker = new ShellPipes();
    pipes = maker;
    const sets = [await take(maker), ...(await Promise.all(Array.from({ length: 19 }, () => take(maker))))];
    const fds = sets.flatMap((set) =>
      Object.values(set ?? {}).flatMap(({ readFd, writeFd }) => [readFd, writeFd]),
    );
    expect(new Set(fds).size).toBe(20 * 6);
  });

  it('are unavailable without a shell', async () => {
    expect(await take(new ShellPipes('/no/such/shell'))).toBeUndefined();
    expect(await take(new ShellPipes('/bin/false'))).toBeUndefined();
  });

  it('leave no process or descriptor behind', async () => {
    const before = (await readdir('/proc/self/fd')).length;
    const maker = new ShellPipes();
    const set = await maker.take();
    if (set !== undefined) closePipes(set);
    await maker.close();
    await expect
      .poll(async () => (await readdir('/proc/self/fd')).length, PATIENT)
      .toBeLessThanOrEqual(before);
  });
});
