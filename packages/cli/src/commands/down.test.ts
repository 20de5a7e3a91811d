import type { ChildProcess } from 'node:child_process';
import { access, mkdir, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startServer, stopServer, torpor } from '../../testing/run-torpor.ts';

describe('the server of a data directory', { timeout: 60_000 }, () => {
  let top: string;
  let dataDir: string;
  let server: ChildProcess | undefined;

  beforeEach(async () => {
    top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-down-')));
    dataDir = join(top, 'data');
  });
  afterEach(async () => {
    await stopServer(server);
    await rm(top, { recursive: true });
  });

  async function up(): Promise<void> {
    server = await startServer(dataDir);
  }

  const run = (...args: string[]) => torpor([...args, '--data-dir', dataDir]);
  const destroy = (...args: string[]) => run('destroy', ...args, '--json');
  const isThere = (path: string) =>
    access(path).then(
      () => true,
      () => false,
    );

  it('stops after pausing every sandbox, and only then its directory can be destroyed', async () => {
    await up();
    await run('org', 'create', 'acme');
    const { stdout } = await run('keys', 'create', 'first', '--org', 'acme', '--json');
    const { key } = JSON.parse(stdout) as { readonly key: string };
    const ids = [
      (await run('create')).stdout.trim(),
      (await torpor(['create', '--data-dir', dataDir], { env: { TORPOR_API_KEY: key } })).stdout.trim(),
    ];
    expect(ids).toEqual([expect.stringMatching(/^sbx_/), expect.stringMatching(/^sbx_/)]);
    expect(await destroy('--yes')).toMatchObject({ code: 1, stderr: expect.stringContaining('is in use') });

    const down = await run('down');

    expect(down).toMatchObject({ code: 0, stdout: expect.stringContaining('the server has stopped') });
    for (const id of ids) expect(down.stdout).toContain(`${id} is paused in ckpt_`);
    expect(await run('down')).toMatchObject({ code: 12 });
    expect(await destroy()).toMatchObject({ code: 10, stderr: expect.stringContaining('--yes') });
    expect(await isThere(dataDir)).toBe(true);
    expect(await destroy('--yes')).toMatchObject({ code: 0, stdout: expect.stringContaining(dataDir) });
    expect(await isThere(dataDir)).toBe(false);
  });

  it('continues to run when a sandbox cannot be paused, unless forced', async () => {
    await up();
    const id = (await run('create')).stdout.trim();
    // A checkpoint cannot be sealed in a read-only directory.
    await rm(join(dataDir, 'checkpoints', 'staging'), { recursive: true });
    await writeFile(join(dataDir, 'checkpoints', 'staging'), '');

    const refused = await run('down');
    expect(refused).toMatchObject({ code: 1, stdout: expect.stringContaining(`${id} cannot be paused`) });
    expect((await run('get', id)).code).toBe(0);

    expect(await run('down', '--force')).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('the server has stopped'),
    });
    expect(await destroy('--yes')).toMatchObject({ code: 1, stderr: expect.stringContaining(id) });
    // The next server finds the sandbox that still runs, and kills it.
    await rm(join(dataDir, 'checkpoints', 'staging'));
    await mkdir(join(dataDir, 'checkpoints', 'staging'));
    await up();
    expect((await run('kill', id, '--yes')).code).toBe(0);
    expect((await run('down')).code).toBe(0);
  });

  it('is not destroyed when it is not a data directory, or not given', async () => {
    await mkdir(dataDir);
    await writeFile(join(dataDir, 'precious'), 'kept');
    expect(await destroy('--yes')).toMatchObject({
      code: 10,
      stderr: expect.stringContaining('not a data directory'),
    });
    expect((await torpor(['destroy', '--yes'])).code).toBe(10);
    expect(await readdir(dataDir)).toEqual(['precious']);
  });
});
