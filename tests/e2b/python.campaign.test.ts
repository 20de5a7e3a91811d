import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { recordPassed } from './compatibility-table.ts';
import { e2bServer, OWN_BASE } from './e2b-server.ts';

const run = promisify(execFile);

const CHAPTERS = [
  ...['commands', 'terminals', 'files', 'git', 'lifecycle', 'building', 'gateways', 'not_yet'],
];
const PROGRAM = join(import.meta.dirname, 'python/every_method.py');

const dir = await mkdtemp(join(tmpdir(), 'torpor-python-'));
const noGvisor = await whyNoGvisor();
const noPackage = noGvisor ?? (await install().then(() => null, String));
if (noPackage !== null) console.log(`E2B's Python package is not tried: ${noPackage}`);

async function install(): Promise<void> {
  await run('python3', ['-m', 'venv', join(dir, 'venv')], { timeout: 120_000 });
  await run(join(dir, 'venv', 'bin', 'pip'), ['install', '--quiet', 'e2b'], { timeout: 300_000 });
}

afterAll(() => rm(dir, { recursive: true }));

describe.skipIf(noPackage !== null)('E2B’s Python package, in gVisor', () => {
  it.each([
    ['sync', '`e2b` for Python'],
    ['async', '`e2b` for Python, asynchronous'],
  ])('calls every public method of the %s client', async (client, name) => {
    const world = await e2bServer('http', 'gvisor', OWN_BASE);
    try {
      const env = { PATH: process.env['PATH'], HOME: dir, ...world.env };
      const { stdout } = await run(join(dir, 'venv', 'bin', 'python'), [PROGRAM, client], { env });
      const lines = stdout.trim().split('\n');
      const [, version = ''] = /^version (\S+)$/.exec(lines.at(-1) ?? '') ?? [];
      const passed = lines.slice(0, -1).filter((line) => CHAPTERS.includes(line));
      expect(passed).toEqual(CHAPTERS);
      recordPassed({ name, version, over: 'http', passed });
    } finally {
      await world.dispose();
    }
  });
});
