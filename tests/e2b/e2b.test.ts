import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type E2bServer, e2bServer, optionsOf, runProgram } from './e2b-server.ts';

const noGvisor = await whyNoGvisor();
/** Long enough for a busy machine. */
const TIMEOUT_MS = 300_000;

/** `npm run test:e2b` runs all chapters with two generations of the package, over http and over TLS. */
const CHAPTERS = [
  ...['commands', 'terminals', 'files', 'watching', 'signedUrls', 'finding', 'timeouts', 'sleeping', 'forks'],
  ...['figures', 'building', 'notYet', 'ending'],
] as const;

describe.skipIf(noGvisor !== null)('an unchanged program of E2B’s, in gVisor', () => {
  it('by the newest package over http', { timeout: TIMEOUT_MS }, async () => {
    const world = await e2bServer('http', 'gvisor');
    try {
      const told = await runProgram(world, 'e2b', CHAPTERS);
      expect(told.map((line) => line.split(' ')[0])).toEqual(CHAPTERS);
    } finally {
      await world.dispose();
    }
  });
});

describe('on the process runtime', () => {
  let world: E2bServer;
  let options: ReturnType<typeof optionsOf>;

  beforeAll(async () => {
    world = await e2bServer('http', 'process');
    options = optionsOf(world);
  }, TIMEOUT_MS);
  afterAll(() => world.dispose(), TIMEOUT_MS);

  const refusal = /^SandboxError: 501: /;

  it('commands, files, pause and connect work, and the processes are reported as lost', async () => {
    const sandbox = await Sandbox.create({ ...options, timeoutMs: 300_000 });
    await sandbox.files.write('a.txt', 'kept');
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    expect(await sandbox.pause()).toBe(true);
    const woken = await Sandbox.connect(sandbox.sandboxId, options);
    expect(await woken.files.read('a.txt')).toBe('kept');
    expect(await woken.commands.list()).toEqual([]);
    expect(await woken.kill()).toBe(true);
  });

  it('unsupported requests are refused with a reason and change nothing', async () => {
    const sandbox = await Sandbox.create({ ...options, timeoutMs: 300_000 });
    const said = (work: Promise<unknown>) => work.then(String, String);
    expect(await said(sandbox.pause({ keepMemory: true }))).toMatch(refusal);
    expect(await said(sandbox.updateNetwork({ allowInternetAccess: false }))).toMatch(refusal);
    const offline = Sandbox.create({ ...options, allowInternetAccess: false });
    expect(await said(offline)).toMatch(refusal);
    const lifecycle = { onTimeout: { action: 'pause', keepMemory: true } } as const;
    expect(await said(Sandbox.create({ ...options, lifecycle }))).toMatch(refusal);
    expect(await sandbox.isRunning()).toBe(true);
    expect(await Sandbox.list(options).nextItems()).toHaveLength(1);
    await sandbox.kill();
  });
});
