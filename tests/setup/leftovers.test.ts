import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, it } from 'vitest';
import { leftovers } from './leftovers.ts';

it('finds a process that a test has left, by the temporary directory of the test', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'torpor-left-'));
  const isOurs = (line: string) => line.includes(directory);
  const found = () => leftovers(readFileSync(inject('temporaryDirectories'), 'utf8')).filter(isOurs);
  expect(found()).toEqual([]);
  const child = spawn('sleep', ['1000'], { cwd: directory, detached: true, stdio: 'ignore' });
  await once(child, 'spawn');
  try {
    expect(found()).toEqual([
      `tests/setup/leftovers.test.ts: process ${child.pid} in ${directory}: sleep 1000 `,
    ]);
  } finally {
    child.kill('SIGKILL');
    await once(child, 'exit');
    await rm(directory, { recursive: true });
  }
  expect(found()).toEqual([]);
});
