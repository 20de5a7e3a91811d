import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { usableRunsc } from '../../testing/runsc-world.ts';
import { hostChecks } from './host-checks.ts';
import { probeGvisor } from './probe.ts';

const program = await usableRunsc();

describe.skipIf(program === undefined)('the probe of gVisor', () => {
  let top: string;
  let host: Parameters<typeof probeGvisor>[0];

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-g-'));
    await mkdir(join(top, 'data'));
    await mkdir(join(top, 'bin'));
    const none = join(top, 'none');
    host = { dataDir: join(top, 'data'), path: join(top, 'bin'), machineWide: none, signal: unhurried };
  });

  afterEach(() => rm(top, { recursive: true }));

  /** A runsc that logs its arguments before it runs. */
  async function put(does: string): Promise<void> {
    const script = `#!/bin/sh\necho "$@" >> ${top}/asked\n${does}\n`;
    await writeFile(join(top, 'bin', 'runsc'), script);
    await chmod(join(top, 'bin', 'runsc'), 0o755);
  }

  /** The number of restores. */
  async function restores(): Promise<number> {
    return (await readFile(join(top, 'asked'), 'utf8')).match(/ restore /g)?.length ?? 0;
  }

  it('restores a sandbox once, and again only with another build', async () => {
    await put(`exec ${program} "$@"`);

    expect(await probeGvisor(host)).toMatchObject({ ok: true, program: join(top, 'bin', 'runsc') });
    expect(await restores()).toBe(1);
    expect(await probeGvisor(host)).toMatchObject({ ok: true });
    expect(await restores()).toBe(1);

    await put(`: another build\nexec ${program} "$@"`);
    expect(await probeGvisor(host)).toMatchObject({ ok: true });
    expect(await restores()).toBe(2);
    expect(await readdir(host.dataDir)).toEqual(['gvisor']);
  });

  it('reports a failure in one line, and tries again when it is called again', async () => {
    const version = `[ "$1" = --version ] && exec ${program} --version`;
    await put(`${version}\n[ "\${*#* checkpoint }" != "$*" ] && exit 128\nexec ${program} "$@"`);

    for (const times of [1, 2]) {
      expect(await probeGvisor(host)).toEqual({
        ok: false,
        why: expect.stringMatching(/^sandbox on systrap: .*runsc checkpoint failed.*$/),
      });
      const asked = await readFile(join(top, 'asked'), 'utf8');
      expect(asked.match(/ checkpoint /g)).toHaveLength(times);
    }
    expect(await readdir(host.dataDir)).toEqual([]);
  });

  it('says what to do when there is no runsc', async () => {
    expect(await probeGvisor(host)).toEqual({ ok: false, why: expect.stringContaining('sudo npm start') });
  });

  it('is one of the host checks, which leave nothing in the data directory', async () => {
    await put(`exec ${program} "$@"`);

    const checks = await hostChecks(host);

    expect(checks.find(({ name }) => name === 'sandbox on systrap')).toMatchObject({ ok: true });
    expect(checks.find(({ name }) => name === 'runsc')).toMatchObject({ ok: true });
    expect(checks.filter(({ ok, fix }) => ok === (fix !== null))).toEqual([]);
    expect(await readdir(host.dataDir)).toEqual([]);
  });
});
