import type { ChildProcess } from 'node:child_process';
import { access, appendFile, mkdir, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startServer, stopServer, torpor } from '../../testing/run-torpor.ts';

describe('backup and restore', { timeout: 120_000 }, () => {
  let top: string;
  let server: ChildProcess | undefined;
  const at = (name: string) => join(top, name);

  beforeEach(async () => {
    top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-backup-')));
  });
  afterEach(async () => {
    await down();
    await rm(top, { recursive: true });
  });

  async function up(dataDir: string): Promise<void> {
    server = await startServer(dataDir);
  }

  const down = () => stopServer(server);

  const run = (dataDir: string, command: string, ...args: string[]) =>
    torpor([command, '--data-dir', dataDir, ...args]);

  /** A data directory with one sleeper, and a backup of it that was taken while its server ran. */
  async function saved(): Promise<string> {
    await up(at('data'));
    const id = (await run(at('data'), 'create')).stdout.trim();
    expect((await run(at('data'), 'exec', id, 'echo kept > note')).code).toBe(0);
    expect((await run(at('data'), 'pause', id)).code).toBe(0);
    const backup = await run(at('data'), 'backup', at('backup'), '--json');
    expect(backup).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(backup.stdout)).toMatchObject({
      directory: at('backup'),
      database: 'sqlite',
      checkpoints: 2,
      unsaved: [],
    });
    return id;
  }

  it('bring a sleeper back on a machine that has nothing else', async () => {
    const id = await saved();
    await run(at('data'), 'kill', id, '--yes');
    await down();
    await rm(at('data'), { recursive: true });

    const restore = await run(at('again'), 'restore', at('backup'));
    expect(restore).toMatchObject({ code: 0, stdout: expect.stringContaining('2 checkpoints') });
    await up(at('again'));
    expect((await run(at('again'), 'resume', id)).code).toBe(0);
    expect((await run(at('again'), 'exec', id, 'cat note')).stdout).toBe('kept\n');
    expect((await run(at('again'), 'kill', id, '--yes')).code).toBe(0);
  });

  it('need no server, and make no difference between one and the next backup', async () => {
    const id = await saved();
    await down();
    const second = await run(at('data'), 'backup', at('second'), '--json');
    expect(JSON.parse(second.stdout)).toMatchObject({ checkpoints: 2, unsaved: [] });
    expect((await run(at('again'), 'restore', at('second'))).code).toBe(0);
    await up(at('again'));
    expect((await run(at('again'), 'resume', id)).code).toBe(0);
    expect((await run(at('again'), 'exec', id, 'cat note')).stdout).toBe('kept\n');
    expect((await run(at('again'), 'kill', id, '--yes')).code).toBe(0);
  });

  it('save everything else when a checkpoint is damaged, and say so', async () => {
    await saved();
    const sealed = join(at('data'), 'checkpoints', 'sealed');
    const [damaged = ''] = await readdir(sealed);
    await rm(join(sealed, damaged, 'manifest.json'));
    const backup = await run(at('data'), 'backup', at('second'), '--json');
    expect(backup.code).toBe(1);
    expect(JSON.parse(backup.stdout)).toMatchObject({
      checkpoints: 1,
      unsaved: [{ id: damaged, code: 'checkpoint_missing' }],
    });
    await rm(join(sealed, damaged), { recursive: true });
    const missing = await run(at('data'), 'backup', at('third'), '--json');
    expect(JSON.parse(missing.stdout)).toMatchObject({
      checkpoints: 1,
      unsaved: [{ id: damaged, code: 'checkpoint_missing' }],
    });
  });

  it('refuse what is not empty, not a data directory or not a backup', async () => {
    await saved();
    expect(await run(at('data'), 'backup', at('backup'))).toMatchObject({
      code: 14,
      stderr: expect.stringContaining('is not empty'),
    });
    expect(await run(at('data'), 'backup', join(at('data'), 'inside'))).toMatchObject({
      code: 10,
      stderr: expect.stringContaining('lies in the data directory'),
    });
    await mkdir(at('empty'));
    expect(await run(at('empty'), 'backup', at('another'))).toMatchObject({
      code: 10,
      stderr: expect.stringContaining('not a data directory'),
    });
    expect(await run(at('again'), 'restore', at('empty'))).toMatchObject({
      code: 10,
      stderr: expect.stringContaining('not a finished backup'),
    });
    expect(await run(at('data'), 'restore', at('backup'))).toMatchObject({
      code: 14,
      stderr: expect.stringContaining('is not empty'),
    });
    expect(await torpor(['restore', at('backup')])).toMatchObject({
      code: 10,
      stderr: expect.stringContaining('rollback'),
    });
  });

  it('find damage to a backup, and a server does not start from half of it', async () => {
    await saved();
    await down();
    await appendFile(join(at('backup'), 'torpor.db'), 'x');
    expect(await run(at('again'), 'restore', at('backup'))).toMatchObject({
      code: 14,
      stderr: expect.stringContaining('is not what was saved'),
    });
    const start = await torpor(['up', '--runtime', 'process', '--port', '0', '--data-dir', at('again')]);
    expect(start).toMatchObject({ code: 14, stderr: expect.stringContaining('did not end') });
    await writeFile(join(at('backup'), 'backup.json'), '{}');
    expect(await run(at('again'), 'restore', at('backup'))).toMatchObject({
      code: 14,
      stderr: expect.stringContaining('is damaged'),
    });
  });

  it('keep checkpoints from being removed while they are copied', async () => {
    const id = await saved();
    const sealed = join(at('data'), 'checkpoints', 'sealed');
    const before = await readdir(sealed);
    const holds = join(at('data'), 'checkpoints', 'holds');
    // As a backup that is under way does it.
    await writeFile(join(holds, 'test'), '');
    await run(at('data'), 'kill', id, '--yes');
    await run(at('data'), 'fsck');
    expect(await readdir(sealed)).toEqual(before);
    await rm(join(holds, 'test'));
    await run(at('data'), 'fsck');
    expect(await readdir(sealed)).toHaveLength(before.length - 1);
    await expect(access(holds)).resolves.toBeUndefined();
  });
});
