import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PROGRAM, torporInProcess } from '../../testing/run-torpor.ts';

let place: string;
beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), 'torpor-unit-'));
});
afterEach(() => rm(place, { recursive: true, force: true }));

const install = (...args: string[]) => torporInProcess(['service', 'install', ...args]);
/** `systemd-analyze verify` works without systemd as the first process. */
const canVerify = spawnSync('systemd-analyze', ['--version']).status === 0;

describe('service install', () => {
  it('writes a unit that starts this torpor with the data directory', async () => {
    const unit = join(place, 'torpor.service');
    const { code, stdout } = await install('--unit', unit, '--data-dir', join(place, 'data'));
    expect([code, stdout]).toEqual([0, `${unit} is written\n`]);
    const text = await readFile(unit, 'utf8');
    expect(text).toContain(`ExecStart=${process.execPath} ${PROGRAM} up\n`);
    expect(text).toContain(`Environment=TORPOR_DATA_DIR=${join(place, 'data')}\n`);
  });

  it('only prints the unit with --dry-run', async () => {
    const unit = join(place, 'torpor.service');
    const { code, stdout } = await install('--unit', unit, '--dry-run');
    expect([code, stdout]).toEqual([0, expect.stringContaining('\nExecStart=')]);
    await expect(readFile(unit)).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('says what to do when the unit cannot be written', async () => {
    const { code, stderr } = await install('--unit', join(place, 'missing/torpor.service'));
    expect(code).not.toBe(0);
    expect(stderr).toContain('--unit');
  });

  it.skipIf(!canVerify)('writes what systemd accepts', async () => {
    const unit = join(place, 'torpor.service');
    await install('--unit', unit, '--data-dir', join(place, 'my data'));
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', unit], {
      encoding: 'utf8',
    });
    // It also complains about units of the machine.
    expect(
      stderr.split('\n').filter((line) => line.includes(unit) || line.startsWith('torpor.service')),
    ).toEqual([]);
    expect(status).toBe(0);
  });
});
