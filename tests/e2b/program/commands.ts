/** Commands: output, failures, input, background, terminals. */
import assert from 'node:assert/strict';
import { type Chapter, until } from './chapter.ts';

export const commands: Chapter = async ({ e2b, sandbox }) => {
  const heard: string[] = [];
  const result = await sandbox.commands.run('echo "$GREETING from $(whoami) in $(pwd)"; echo oops >&2', {
    envs: { EXTRA: '1' },
    onStdout: (text) => void heard.push(text),
  });
  assert.deepEqual(
    [result.exitCode, result.stdout, result.stderr],
    [0, 'hello from user in /home/user\n', 'oops\n'],
  );
  assert.equal(heard.join(''), result.stdout);
  const asRoot = await sandbox.commands.run('id -u; pwd; echo $EXTRA', {
    user: 'root',
    cwd: '/tmp',
    envs: { EXTRA: '2' },
  });
  assert.equal(asRoot.stdout, '0\n/tmp\n2\n');
  await assert.rejects(sandbox.commands.run('echo last words; exit 7'), (thrown) => {
    assert.ok(thrown instanceof e2b.CommandExitError);
    assert.deepEqual([thrown.exitCode, thrown.stdout], [7, 'last words\n']);
    return true;
  });
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), e2b.TimeoutError);
};

export const background: Chapter = async ({ sandbox }) => {
  const reader = await sandbox.commands.run('while read line; do echo "got $line"; done; echo over', {
    background: true,
    stdin: true,
    timeoutMs: 0,
  });
  const listed = await sandbox.commands.list();
  assert.ok(listed.some(({ pid }) => pid === reader.pid));
  await sandbox.commands.sendStdin(reader.pid, 'one\n');
  await reader.sendStdin('two\n');
  await until(() => reader.stdout.includes('got two'), 'the second line came back');
  await reader.disconnect();
  const again = await sandbox.commands.connect(reader.pid, { timeoutMs: 0 });
  await sandbox.commands.sendStdin(reader.pid, 'three\n');
  await sandbox.commands.closeStdin(reader.pid);
  assert.match((await again.wait()).stdout, /got three\nover\n$/);

  const sink = await sandbox.commands.run('cat > /tmp/sink', { background: true, stdin: true });
  await sink.sendStdin('all of it');
  await sink.closeStdin();
  assert.equal((await sink.wait()).exitCode, 0);

  const [first, second] = await Promise.all(
    [1, 2].map(() => sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })),
  );
  assert.equal(await sandbox.commands.kill(first?.pid ?? 0), true);
  assert.equal(await second?.kill(), true);
  assert.equal(await sandbox.commands.kill(999_999), false);
  await assert.rejects(async () => first?.wait());
  await assert.rejects(async () => second?.wait());
};

export const terminals: Chapter = async ({ sandbox }) => {
  let seen = '';
  const onData = (bytes: Uint8Array) => {
    seen += new TextDecoder().decode(bytes);
  };
  const type = (pid: number, text: string) => sandbox.pty.sendInput(pid, new TextEncoder().encode(text));
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData, timeoutMs: 0 });
  await sandbox.pty.resize(terminal.pid, { cols: 101, rows: 31 });
  await type(terminal.pid, 'echo "size $(stty size)"\n');
  await until(() => seen.includes('size 31 101'), 'the terminal has its new size');
  await terminal.disconnect();
  seen = '';
  const again = await sandbox.pty.connect(terminal.pid, { onData, timeoutMs: 0 });
  await type(terminal.pid, 'echo $((6 * 7))\n');
  await until(() => seen.includes('42'), 'the terminal goes on after a reconnect');
  assert.equal(await sandbox.pty.kill(terminal.pid), true);
  await assert.rejects(again.wait());
};
