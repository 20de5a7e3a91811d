/** The lifecycle of a sandbox: find, set the lifetime, pause, resume with everything it had, kill. */
import assert from 'node:assert/strict';
import { type Chapter, until } from './chapter.ts';

const MINUTE = 60_000;

export const finding: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox } = e2b;
  const { sandboxId } = sandbox;
  assert.equal(await sandbox.isRunning(), true);
  const info = await sandbox.getInfo();
  assert.deepEqual(
    [info.sandboxId, info.templateId, info.state, info.metadata],
    [sandboxId, 'base', 'running', { purpose: 'a b&c=d' }],
  );
  assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true });
  assert.equal((await Sandbox.getInfo(sandboxId)).sandboxId, sandboxId);
  assert.equal((await Sandbox.getFullInfo(sandboxId)).sandboxId, sandboxId);

  const list = async (query?: object) => {
    const pages = Sandbox.list({ query, limit: 1 } as Parameters<typeof Sandbox.list>[0]);
    const ids: string[] = [];
    while (pages.hasNext) ids.push(...(await pages.nextItems()).map((item) => item.sandboxId));
    return ids;
  };
  assert.ok((await list()).includes(sandboxId));
  assert.deepEqual(await list({ metadata: { purpose: 'a b&c=d' } }), [sandboxId]);
  assert.deepEqual(await list({ metadata: { purpose: 'another' } }), []);
  assert.equal((await list({ state: ['paused'] })).includes(sandboxId), false);
  assert.deepEqual(await list({ template: 'no-such-template' }), []);
  await assert.rejects(Sandbox.getInfo('i'.repeat(20)), e2b.SandboxNotFoundError);
  assert.equal(await Sandbox.kill('i'.repeat(20)), false);
};

export const timeouts: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox } = e2b;
  const left = async () => (await sandbox.getInfo()).endAt.getTime() - Date.now();
  await sandbox.setTimeout(40 * MINUTE);
  assert.ok((await left()) > 39 * MINUTE);
  await sandbox.connect({ timeoutMs: MINUTE });
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: MINUTE });
  assert.ok((await left()) > 39 * MINUTE, 'a connect never shortens');
  await Sandbox.setTimeout(sandbox.sandboxId, 20 * MINUTE);
  assert.ok((await left()) < 21 * MINUTE, 'a timeout may');
};

export const sleeping: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox } = e2b;
  const { sandboxId } = sandbox;
  await sandbox.files.write('kept.txt', 'kept');
  const counter = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n > n; sleep 0.1; done', {
    background: true,
    timeoutMs: 0,
  });
  await until(
    async () => (await sandbox.files.exists('n')) && Number(await sandbox.files.read('n')) > 1,
    'it counts',
  );
  assert.equal(await sandbox.pause(), true);
  assert.equal(await sandbox.pause(), false);
  assert.equal(await Sandbox.pause(sandboxId), false);
  assert.equal(await sandbox.betaPause(), false);
  assert.equal(await Sandbox.betaPause(sandboxId), false);
  assert.equal(await sandbox.isRunning(), false);
  assert.equal((await sandbox.getInfo()).state, 'paused');
  await assert.rejects(sandbox.setTimeout(MINUTE), e2b.SandboxNotFoundError);

  const woken = await Sandbox.connect(sandboxId, { timeoutMs: 10 * MINUTE });
  assert.equal(await woken.files.read('kept.txt'), 'kept');
  assert.ok(
    (await woken.commands.list()).some(({ pid }) => pid === counter.pid),
    'the process is the same',
  );
  const before = Number(await woken.files.read('n'));
  await until(async () => Number(await woken.files.read('n')) > before, 'it counts on');
  assert.deepEqual((await woken.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true });
  assert.equal(await woken.commands.kill(counter.pid), true);
};

/** A paused sandbox with auto-resume wakes for a request. */
export const autoResume: Chapter = async ({ sandbox }) => {
  assert.equal(await sandbox.pause(), true);
  assert.equal((await sandbox.commands.run('cat kept.txt')).stdout, 'kept');
  assert.equal(await sandbox.isRunning(), true);
};

/** A pause without memory keeps only the files. A resume from files alone gives the same result. */
export const withoutMemory: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox } = e2b;
  await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
  assert.equal(await sandbox.pause({ keepMemory: false }), true);
  const woken = await Sandbox.connect(sandbox.sandboxId);
  assert.deepEqual(await woken.commands.list(), []);
  assert.equal(await woken.files.read('kept.txt'), 'kept');
  const options = { onResume: 'reboot' } as object;
  await woken.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
  assert.equal(await woken.pause(), true);
  const rebooted = await Sandbox.connect(sandbox.sandboxId, options);
  // The older package has no such option, so the processes are listed instead.
  const processes = (await rebooted.commands.list()).length;
  assert.ok(processes === 0 || !('ServiceBusyError' in e2b), `${processes} processes came back`);
  for (const { pid } of await rebooted.commands.list()) await rebooted.commands.kill(pid);
};

export const ending: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox } = e2b;
  assert.equal(await sandbox.kill(), true);
  assert.equal(await sandbox.kill(), false);
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false);
  assert.equal(await sandbox.isRunning(), false);
  await assert.rejects(sandbox.getInfo(), e2b.SandboxNotFoundError);
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), e2b.SandboxNotFoundError);
  await assert.rejects(sandbox.pause(), e2b.SandboxNotFoundError);
};
