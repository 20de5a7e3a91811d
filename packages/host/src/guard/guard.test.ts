import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { constants, getPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, vi } from 'vitest';
import { linuxProcesses } from '../processes/linux-processes.ts';
import { bootTime } from './boot-time.ts';

const PROGRAM = fileURLToPath(new URL('./guarded-server.ts', import.meta.url));
const LEASE_MS = 1_500;

interface Served extends AsyncDisposable {
  readonly directory: string;
  readonly server: ChildProcess;
  readonly guard: number;
  readonly sandbox: number;
}

async function serve(leaseMs = LEASE_MS, earlier?: Served): Promise<Served> {
  const directory = earlier?.directory ?? (await mkdtemp(join(tmpdir(), 'torpor-guard-')));
  const args = [PROGRAM, directory, String(leaseMs), earlier === undefined ? 'yes' : 'no'];
  const server = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const [line] = (await once(server.stdout as NonNullable<typeof server.stdout>, 'data')) as [Buffer];
  const { guard, sandbox } = JSON.parse(String(line)) as { guard: number; sandbox: number };
  const dispose = async () => {
    for (const pid of [guard, server.pid as number, ...(sandbox === 0 ? [] : [sandbox])]) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has ended, as it should.
      }
    }
    if (earlier === undefined) await rm(directory, { recursive: true });
  };
  return { directory, server, guard, sandbox, [Symbol.asyncDispose]: dispose };
}

async function isAlive(pid: number): Promise<boolean> {
  const facts = await linuxProcesses.read(pid);
  return facts !== undefined && facts.state !== 'dead';
}

/** Not `expect.poll`, which tests that run at the same time cannot share. */
async function ends(pid: number): Promise<void> {
  const gone = async () => {
    if (await isAlive(pid)) throw new Error(`The process ${pid} lives.`);
  };
  await vi.waitFor(gone, { timeout: 10_000, interval: 20 });
}

describe('the clock of the guard', () => {
  it('is the time since the start of the machine, in milliseconds', async () => {
    const before = bootTime();
    await delay(50);
    expect(bootTime() - before).toBeGreaterThanOrEqual(40);
    expect(before).toBeGreaterThan(1_000);
  });
});

describe.skipIf(process.getuid?.() !== 0)('the priority of the guard', () => {
  it('is the highest: on an overloaded machine it must still be in time', async () => {
    await using served = await serve(60_000);
    expect(getPriority(served.guard)).toBe(constants.priority.PRIORITY_HIGHEST);
  });
});

// Each test waits for a deadline, so they wait at the same time.
describe.concurrent('the guard', () => {
  it('leaves everything alone as long as the server moves its deadline', async () => {
    await using served = await serve();
    const { server, guard, sandbox } = served;
    await delay(LEASE_MS * 2);
    for (const pid of [server.pid as number, guard, sandbox]) expect(await isAlive(pid)).toBe(true);
  });

  it('ends the sandboxes of a server that was killed, when the deadline has come and not before', async () => {
    await using served = await serve();
    const { server, guard, sandbox } = served;
    server.kill('SIGKILL');
    await once(server, 'exit');
    expect(await isAlive(sandbox)).toBe(true);
    await ends(sandbox);
    await ends(guard);
  });

  it('ends a server that was stopped past its deadline, with its sandboxes, so that it cannot be continued', async () => {
    await using served = await serve();
    const { server, guard, sandbox } = served;
    const ended = once(server, 'exit');
    server.kill('SIGSTOP');
    await ends(sandbox);
    expect(await ended).toEqual([null, 'SIGKILL']);
    await ends(guard);
  });

  it('takes its server and all sandboxes with it when it is killed', async () => {
    await using served = await serve();
    const { server, guard, sandbox } = served;
    const ended = once(server, 'exit');
    process.kill(guard, 'SIGKILL');
    await ended;
    await ends(sandbox);
  });

  it('goes on for the sandboxes of a server that stopped in order, until the next server takes over', async () => {
    await using first = await serve(30_000);
    const ended = once(first.server, 'exit');
    first.server.kill('SIGTERM');
    await ended;
    expect(await isAlive(first.guard)).toBe(true);
    await using second = await serve(LEASE_MS, first);
    await ends(first.guard);
    expect(await isAlive(first.sandbox)).toBe(true);
    second.server.kill('SIGKILL');
    await ends(first.sandbox);
    await ends(second.guard);
  });

  it('ends soon after its server when no sandbox is left', async () => {
    await using served = await serve();
    const { server, guard, sandbox } = served;
    process.kill(sandbox, 'SIGKILL');
    server.kill('SIGTERM');
    await ends(guard);
  });
});
