import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { withLock } from './lock.mjs';

let dir: string;
let file: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'torpor-lock-'));
  file = join(dir, 'made-on-demand', 'setup.lock');
});

afterEach(() => rmSync(dir, { recursive: true }));

const silently = () => {};

describe('the setup lock', () => {
  it('exists during the work and not afterwards', async () => {
    const held = await withLock(file, silently, () => existsSync(file));

    expect(held).toBe(true);
    expect(existsSync(file)).toBe(false);
  });

  it('is removed when the work throws', async () => {
    const failing = withLock(file, silently, () => {
      throw new Error('no');
    });

    await expect(failing).rejects.toThrow('no');
    expect(existsSync(file)).toBe(false);
  });

  it('makes others wait while its holder lives, and names the holder', async () => {
    await withLock(file, silently, () => {});
    writeFileSync(file, String(process.pid));
    const said: string[] = [];

    const waited = await withLock(
      file,
      (line) => {
        said.push(line);
        rmSync(file);
      },
      () => 'done',
    );

    expect(waited).toBe('done');
    expect(said).toEqual([`waiting for another setup (process ${process.pid}; ${file})`]);
  });

  it('is taken over from a dead holder', async () => {
    await withLock(file, silently, () => {});
    const { pid } = spawnSync('true');
    writeFileSync(file, String(pid));

    expect(await withLock(file, silently, () => 'done')).toBe('done');
  });
});
