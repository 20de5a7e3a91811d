/**
 * Known bugs of other sandbox products (E2B#884, #1104, #875, #1055, #736, #582, #1031, #1074, infra#2041,
 * infra#3363, mastra#24621, Dormice#74), each as a check that Torpor does not have it.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox, type SandboxOpts } from 'e2b';
import { until } from './program/chapter.ts';

export type Options = Required<Pick<SandboxOpts, 'apiKey' | 'apiUrl' | 'sandboxUrl'>>;

const LONG = 600_000;

/** E2B#884, #736, #582: changes lost after the second resume, or no second resume at all. */
export async function manyCycles(options: Options, cycles: number): Promise<void> {
  const { sandboxId } = await Sandbox.create({ ...options, timeoutMs: LONG });
  for (let cycle = 0; cycle < cycles; cycle++) {
    const sandbox = await Sandbox.connect(sandboxId, options);
    await sandbox.commands.run(
      `mkdir -p tree/${cycle}; echo ${cycle} > tree/${cycle}/new; echo ${cycle} >> tree/grown; rm -f tree/${cycle - 2}/new; echo ${cycle} > tree/changed`,
    );
    assert.equal(await sandbox.pause(), true);
  }
  const sandbox = await Sandbox.connect(sandboxId, options);
  const numbers = Array.from({ length: cycles }, (_, i) => i);
  assert.equal(await sandbox.files.read('tree/grown'), numbers.map((n) => `${n}\n`).join(''));
  assert.equal(await sandbox.files.read('tree/changed'), `${cycles - 1}\n`);
  const directories = (await sandbox.files.list('tree')).filter(({ type }) => type === 'dir');
  assert.equal(directories.length, cycles);
  for (const n of numbers) assert.equal(await sandbox.files.exists(`tree/${n}/new`), n >= cycles - 2);
  await sandbox.kill();
}

/**
 * E2B#1104: an automatic pause loses the last writes. E2B#1031: a server still holds its port, but is not listed.
 * E2B#875: a connect turns auto-pause off, so that the next timeout kills the sandbox. mastra#24621: every resume
 * resets the lifetime to five minutes.
 */
export async function automaticPause(options: Options): Promise<void> {
  const made = await Sandbox.create({ ...options, timeoutMs: 4_000, lifecycle: { onTimeout: 'pause' } });
  const { sandboxId } = made;
  const server = await made.commands.run(
    `node -e 'require("node:http").createServer((q, r) => r.end("up")).listen(3000)'`,
    { background: true, timeoutMs: 0 },
  );
  const writer = await made.commands.run('while :; do date +%s%N >> log; sync; echo line; sleep 0.05; done', {
    background: true,
    timeoutMs: 0,
  });
  await asleep(sandboxId, options);
  const lines = writer.stdout.split('\n').length - 1;
  await writer.disconnect();

  const woken = await Sandbox.connect(sandboxId, { ...options, timeoutMs: 6_000 });
  const listed = (await woken.commands.list()).map(({ pid }) => pid);
  assert.ok(listed.includes(server.pid) && listed.includes(writer.pid), 'what runs is listed');
  const kept = (await woken.files.read('log')).trim().split('\n').length;
  assert.ok(kept >= lines && lines > 0, `${lines} lines were heard of, ${kept} are there`);
  assert.equal((await woken.commands.run('curl -s http://127.0.0.1:3000')).stdout, 'up');
  const { lifecycle, endAt } = await woken.getInfo();
  assert.equal(lifecycle?.onTimeout, 'pause');
  assert.ok(endAt.getTime() - Date.now() <= 6_000, 'the sandbox is resumed with the requested lifetime');
  await asleep(sandboxId, options);
  await Sandbox.kill(sandboxId, options);
}

/** Dormice#74: an automatic pause without memory was treated as one with memory. */
export async function automaticPauseWithoutMemory(options: Options): Promise<void> {
  const lifecycle = { onTimeout: { action: 'pause', keepMemory: false } } as const;
  const made = await Sandbox.create({ ...options, timeoutMs: 4_000, lifecycle });
  await made.files.write('kept', 'yes');
  await made.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
  await asleep(made.sandboxId, options);
  const woken = await Sandbox.connect(made.sandboxId, options);
  assert.equal(await woken.files.read('kept'), 'yes');
  assert.deepEqual(await woken.commands.list(), []);
  await woken.kill();
}

/** E2B#1074: a command that runs in the background cannot be found again after minutes. */
export async function lateReconnect(options: Options, ms: number): Promise<void> {
  const sandbox = await Sandbox.create({ ...options, timeoutMs: ms + LONG });
  const { pid } = await sandbox.commands.run('while read line; do echo "heard $line"; done', {
    background: true,
    stdin: true,
    timeoutMs: 0,
  });
  await delay(ms);
  const again = await Sandbox.connect(sandbox.sandboxId, options);
  const handle = await again.commands.connect(pid, { timeoutMs: 0 });
  await handle.sendStdin('you\n');
  await until(() => handle.stdout.includes('heard you'), 'the command answers');
  await handle.kill();
  await sandbox.kill();
}

/** infra#3363: files of /proc are downloaded as empty files. */
export async function filesWithoutSize(options: Options): Promise<void> {
  const sandbox = await Sandbox.create({ ...options, timeoutMs: LONG });
  assert.match(await sandbox.files.read('/proc/version'), /Linux/);
  await sandbox.kill();
}

async function asleep(sandboxId: string, options: Options): Promise<void> {
  const state = async () => (await Sandbox.getInfo(sandboxId, options)).state;
  await until(async () => (await state()) === 'paused', 'it went to sleep by itself');
}
