import { type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { spawn as spawnTerminal } from '@lydell/node-pty';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { socketOf } from './socket-path.ts';

/** Runs on this machine itself, where root may use sudo. */
describe.skipIf(process.getuid?.() !== 0)('sudo', () => {
  let directory = '';
  let sockets = '';
  let agent: RunningAgent;
  const program = join(import.meta.dirname, 'program.ts');

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-sudo-'));
    await chmod(directory, 0o755);
    sockets = join(directory, 'sockets');
    agent = await runAgent({ args: ['--sudo-dir', sockets] });
    const sudo = `#!/bin/sh\nexec '${process.execPath}' '${program}' '${sockets}' "$@"\n`;
    await writeFile(join(directory, 'sudo'), sudo, { mode: 0o755 });
  });

  afterAll(async () => {
    await agent.stop();
    await rm(directory, { recursive: true });
  });

  const env = (): NodeJS.ProcessEnv => ({
    PATH: `${directory}:${process.env['PATH']}`,
    HOME: '/tmp',
    MINE: 'x',
  });

  function start(line: string, options: SpawnOptions = {}) {
    return spawn('/bin/sh', ['-c', line], { env: env(), cwd: directory, ...options });
  }

  async function sh(line: string, options: SpawnOptions = {}) {
    const child = start(line, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    const ended = once(child, 'close');
    const [output, errors] = await Promise.all(
      [child.stdout, child.stderr].map((each) => each && text(each)),
    );
    const [code, signal] = (await ended) as [number | null, string | null];
    return { output, errors, code: code ?? signal };
  }

  it('runs a command with separate stdout and stderr, and returns its exit code', async () => {
    expect(await sh('sudo sh -c "id -u; echo oops >&2; exit 7"')).toEqual({
      output: '0\n',
      errors: 'oops\n',
      code: 7,
    });
  });

  it('runs it as another user, in a clean environment, in the caller’s directory', async () => {
    const line = `sudo -u nobody sh -c 'id -un; echo "$MINE|$USER|$SUDO_UID"; pwd'`;
    expect((await sh(line)).output).toBe(`nobody\n|nobody|0\n${directory}\n`);
    expect((await sh('sudo -E sh -c \'echo "$MINE"\'')).output).toBe('x\n');
    expect((await sh('sudo A=1 sh -c \'echo "$A"\'')).output).toBe('1\n');
  });

  it('reports what is wrong', async () => {
    expect(await sh('sudo no-such-program')).toMatchObject({
      errors: 'sudo: no-such-program: command not found\n',
      code: 1,
    });
    expect(await sh('sudo -u mallory id')).toMatchObject({ errors: 'sudo: unknown user mallory\n', code: 1 });
    expect((await sh('sudo')).code).toBe(1);
  });

  it('reports a killed command as a shell does', async () => {
    expect((await sh("sudo sh -c 'kill -TERM $$'")).code).toBe(143);
  });

  it('gives the command its input, and reads none of it itself', async () => {
    expect((await sh('echo hello | sudo cat')).output).toBe('hello\n');
    const loop = 'printf "a\\nb\\nc\\n" | while read x; do sudo true; echo $x; done';
    expect((await sh(loop)).output).toBe('a\nb\nc\n');
  });

  it('gives it a file at the caller’s position', async () => {
    await writeFile(join(directory, 'lines'), 'one\ntwo\nthree\n');
    expect((await sh('{ dd bs=1 count=4 of=/dev/null 2>/dev/null; sudo cat; } < lines')).output).toBe(
      'two\nthree\n',
    );
  });

  it('writes into a file in order with the caller’s own output', async () => {
    await sh('{ echo first; sudo echo second; echo third; } > order');
    expect(await readFile(join(directory, 'order'), 'utf8')).toBe('first\nsecond\nthird\n');
  });

  it('forwards input that cannot be opened again, such as a socket', async () => {
    // Node gives its children sockets.
    const child = start('exec sudo cat', { stdio: ['pipe', 'pipe', 'inherit'] });
    child.stdin?.end('x'.repeat(500_000));
    expect(child.stdout && (await text(child.stdout))).toHaveLength(500_000);
  });

  it('forwards large output completely, and stops when the reader is gone', async () => {
    expect((await sh('sudo head -c 5000000 /dev/zero | wc -c')).output?.trim()).toBe('5000000');
    expect((await sh('sudo yes | head -n 1')).output).toBe('y\n');
  });

  it('forwards signals', async () => {
    const child = start(
      `exec sudo sh -c 'trap "echo caught; exit 3" INT; echo ready; while :; do sleep 0.05; done'`,
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    let said = '';
    child.stdout?.on('data', (bytes) => {
      said += String(bytes);
      if (said === 'ready\n') child.kill('SIGINT');
    });
    const [code] = await once(child, 'close');
    expect([said, code]).toEqual(['ready\ncaught\n', 3]);
  });

  it('ends the command when it is killed itself', async () => {
    // A duration that no other test on this machine uses.
    const sleep = `sleep 1000.${process.pid}`;
    const child = start(`exec sudo sh -c "echo ready; exec ${sleep}"`, {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout as NodeJS.ReadableStream, 'data');
    child.kill('SIGKILL');
    const left = () => sh(`pgrep -fx '${sleep}'`);
    await expect.poll(left, { timeout: 10_000 }).toMatchObject({ output: '' });
  });

  it('leaves a command in the background running, without reading its output', async () => {
    expect(await sh('sudo -b sh -c "sleep 0.3; echo late; echo done > background"')).toMatchObject({
      code: 0,
    });
    const written = () => readFile(join(directory, 'background'), 'utf8').catch(() => '');
    await expect.poll(written, { timeout: 10_000 }).toBe('done\n');
  });

  it('gives a command in a terminal a terminal with the right size and its keys', async () => {
    const line = `sudo sh -c 'test -t 0 && test -t 1 && stty size && read x && echo "got $x"'`;
    const terminal = spawnTerminal('/bin/sh', ['-c', line], {
      env: env() as Record<string, string>,
      cols: 91,
      rows: 17,
    });
    let said = '';
    terminal.onData((data) => {
      if (!said.includes('17 91') && (said + data).includes('17 91')) terminal.write('keys\r');
      said += data;
    });
    const { exitCode } = await new Promise<{ exitCode: number }>((resolve) => terminal.onExit(resolve));
    // Every line feed arrives once, although there are two terminals.
    expect(said).toMatch(/^17 91\r\nkeys\r\ngot keys\r\n$/);
    expect(exitCode).toBe(0);
  });

  it('is refused to users who may not open the socket', async () => {
    const nobody = { uid: 65_534, gid: 65_534 };
    const refusal = await sh('sudo id', nobody);
    expect(refusal).toMatchObject({
      output: '',
      code: 1,
      errors: expect.stringContaining('may not use sudo'),
    });
    expect((await sh('sudo -l', nobody)).code).toBe(1);
    const direct = `require('net').connect('${socketOf(sockets, 0)}').on('error', (e) => console.log(e.code))`;
    const attempt = await sh(`'${process.execPath}' -e "${direct}"`, nobody);
    expect(attempt.output).toBe('EACCES\n');
  });

  it('survives invalid bytes on its socket', async () => {
    const socket = connect(socketOf(sockets, 0));
    socket.end('this is not a frame at all, whatever it may be');
    await once(socket, 'close').catch(() => {});
    expect((await sh('sudo echo still here')).output).toBe('still here\n');
  });

  it('answers -v, -n, -k and -l', async () => {
    expect(await sh('sudo -v && sudo -n true && sudo -k && sudo -l')).toMatchObject({
      code: 0,
      output: expect.stringContaining('NOPASSWD: ALL'),
    });
  });
});
