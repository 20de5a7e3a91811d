/** Tests control groups of version 2 on a kernel that has only those: User-Mode Linux, over the files of the host. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { GOOD_TRIAL } from '../../testing/cgroup-trial.ts';

const run = promisify(execFile);
const LINUX = 'linux.uml';
const TRIAL = join(import.meta.dirname, '../../testing/cgroup-trial.ts');

const isThere =
  process.getuid?.() === 0 &&
  (await run(LINUX, ['--version']).then(
    () => true,
    () => false,
  ));

/** The init process of that machine; the machine powers off at its end. */
const INIT = `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup /sys/fs/cgroup
echo "RESULT $(${process.execPath} ${TRIAL})"
echo o > /proc/sysrq-trigger
sleep 60
`;

describe.skipIf(!isThere)('control groups of version 2 (apt-get install user-mode-linux)', () => {
  it('are limited, counted and removed like those of version 1', { timeout: 240_000 }, async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-uml-'));
    const init = join(directory, 'init');
    await writeFile(init, INIT, { mode: 0o755 });
    try {
      const machine = ['mem=1500M', 'rootfstype=hostfs', 'root=/dev/root', 'rw', `init=${init}`];
      const { stdout } = await run(LINUX, [...machine, 'con=null', 'con0=null,fd:1'], {
        env: { ...process.env, TMPDIR: '/dev/shm' },
      });
      const [, result = 'null'] = /RESULT (.*)/.exec(stdout) ?? [];
      expect(JSON.parse(result)).toEqual({ version: 'v2', ...GOOD_TRIAL });
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});
