import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findConnection, isAlive } from './connection.ts';

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'torpor-cli-'));
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

const home = '/nonexistent';
const find = (env: NodeJS.ProcessEnv = {}, options = {}) =>
  findConnection({ env, home, cwd: '/' }, { dataDir, ...options });

async function left(pid: number): Promise<void> {
  await writeFile(join(dataDir, 'server.json'), JSON.stringify({ url: 'http://127.0.0.1:9', pid }));
  await writeFile(join(dataDir, 'api-key'), 'local-key\n');
}

describe('finding the server', () => {
  it('uses the address and key that the local server left in its data directory', async () => {
    await left(process.pid);
    expect(await find()).toMatchObject({ url: 'http://127.0.0.1:9', apiKey: 'local-key' });
    expect(await findConnection({ env: { TORPOR_DATA_DIR: dataDir }, home, cwd: '/' }, {})).toMatchObject({
      apiKey: 'local-key',
    });
  });

  it('reads the data directory from the same file as the server', async () => {
    await left(process.pid);
    await writeFile(join(dataDir, 'torpor.config.json'), '{"dataDir": "."}');
    expect(await findConnection({ env: {}, home, cwd: dataDir }, {})).toMatchObject({
      apiKey: 'local-key',
      dataDir,
    });
  });

  it('ignores a file whose process has ended', async () => {
    await left(2 ** 22 + 1);
    expect((await find()).url).toBe('http://127.0.0.1:7676');
  });

  it('ignores an incomplete file', async () => {
    await writeFile(join(dataDir, 'server.json'), '{"url":');
    expect((await find()).url).toBe('http://127.0.0.1:7676');
  });

  it('prefers options to the environment, and the environment to files', async () => {
    await left(process.pid);
    const env = { TORPOR_URL: 'http://localhost:2/', TORPOR_API_KEY: 'env-key' };
    expect(await find(env)).toMatchObject({ url: 'http://localhost:2', apiKey: 'env-key' });
    const options = { url: 'http://localhost:3', apiKey: 'given' };
    expect(await find(env, options)).toMatchObject({ url: 'http://localhost:3', apiKey: 'given' });
  });

  it('does not send the local key to another server', async () => {
    await left(process.pid);
    expect((await find({ TORPOR_URL: 'https://torpor.example' })).apiKey).toBeUndefined();
    expect((await find({ TORPOR_URL: 'http://127.0.0.1.example' })).apiKey).toBeUndefined();
    expect((await find({ TORPOR_URL: 'http://[::1]:7676' })).apiKey).toBe('local-key');
  });
});

describe.runIf(process.platform === 'linux')('a server that has ended', () => {
  it('is not alive while its parent has not reaped it', async () => {
    // `sleep` inherits the child of the shell and never reaps it.
    const parent = spawn('sh', ['-c', 'sleep 0.2 & echo $!; exec sleep 30'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    try {
      const pid = Number(await once(parent.stdout, 'data'));
      await expect.poll(() => readFile(`/proc/${pid}/stat`, 'utf8')).toContain(') Z ');
      expect(isAlive(pid)).toBe(false);
      expect(isAlive(process.pid)).toBe(true);
    } finally {
      parent.kill();
    }
  });
});
