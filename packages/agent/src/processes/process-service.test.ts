import { readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, type ConnectError } from '@connectrpc/connect';
import { type AgentClient, agentError, asUser, Signal, type StreamInputRequestSchema } from '@torpor/envd';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, type Transcript, transcribe } from '../../testing/transcript.ts';

let agent: RunningAgent;
let client: AgentClient;

beforeAll(async () => {
  agent = await runAgent({ env: { SECRET_OF_THE_AGENT: 'x' } });
  ({ client } = agent);
});

afterAll(() => agent.stop());

const run = (command: string, more: object = {}) =>
  transcribe(client.process.start({ process: shell(command), stdin: false, ...more }));

const pid = (value: number) => ({ selector: { case: 'pid' as const, value } });

/** Starts a process and stays connected until it has written something. */
async function startUntil(
  command: string,
  until: (said: Transcript) => boolean,
  more: object = {},
): Promise<Transcript> {
  return transcribe(client.process.start({ process: shell(command), stdin: true, ...more }), until);
}

async function codeOf(call: Promise<unknown>): Promise<Code | undefined> {
  return call.then(
    () => undefined,
    (thrown: ConnectError) => thrown.code,
  );
}

/** Polls the condition, because changes of the kernel's process table cannot be awaited. */
async function eventually(check: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await check())) await new Promise((resolve) => setTimeout(resolve, 20));
}

const isGone = (process: number) =>
  readFile(`/proc/${process}/stat`, 'utf8').then(
    (stat) => stat.includes(') Z '),
    () => true,
  );

describe('Start', () => {
  it('sends the pid, then the output of both channels, then the end', async () => {
    const said = await run('echo out; echo err >&2; exit 3');
    expect(said).toMatchObject({ droppedBytes: 0, stdout: 'out\n', stderr: 'err\n' });
    expect(said.pid).toBeGreaterThan(0);
    expect(said.end).toEqual({ exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' });
  });

  it('gives the process its environment with the sandbox variable, and nothing of the agent’s', async () => {
    await client.init({ sandboxId: 'sbx_a', envs: { FROM_SANDBOX: '1', BOTH: 'sandbox' }, hostname: 'box' });
    const process = { ...shell('env'), envs: { BOTH: 'call', TORPOR_SANDBOX: 'forged' } };
    const { stdout } = await transcribe(client.process.start({ process }));
    const env = stdout.split('\n');
    expect(env).toEqual(
      expect.arrayContaining(['FROM_SANDBOX=1', 'BOTH=call', 'HOSTNAME=box', 'TORPOR_SANDBOX=sbx_a']),
    );
    expect(env.some((line) => line.startsWith('HOME=/'))).toBe(true);
    expect(stdout).not.toContain('SECRET_OF_THE_AGENT');
  });

  it('gives the process real pipes, which it can open by name', async () => {
    const said = await run('echo out > /dev/stdout; echo err > /dev/stderr; echo both | tee /dev/stderr');
    expect(said).toMatchObject({ stdout: 'out\nboth\n', stderr: 'err\nboth\n' });
  });

  it('runs in the requested directory, and refuses a directory that does not exist', async () => {
    const process = { ...shell('pwd'), cwd: agent.directory };
    expect((await transcribe(client.process.start({ process }))).stdout).toBe(`${agent.directory}\n`);
    const missing = { ...shell('pwd'), cwd: join(agent.directory, 'missing') };
    expect(await codeOf(transcribe(client.process.start({ process: missing })))).toBe(Code.InvalidArgument);
  });

  it('names an unusable directory and the reason', async () => {
    await writeFile(join(agent.directory, 'file'), '');
    await symlink('loop', join(agent.directory, 'loop'));
    const refusals = [
      ['missing', 'does not exist'],
      ['file', 'is not a directory'],
      ['file/below', 'is not a directory'],
      ['loop', 'cannot be used (ELOOP)'],
    ];
    for (const [name, why] of refusals) {
      const cwd = join(agent.directory, name as string);
      for (const pty of [{}, { pty: { size: { cols: 80, rows: 24 } } }]) {
        const order = { process: { ...shell('pwd'), cwd }, ...pty };
        await expect(transcribe(client.process.start(order))).rejects.toMatchObject({
          code: Code.InvalidArgument,
          rawMessage: `The working directory ${cwd} ${why}.`,
        });
      }
    }
  });

  it('refuses a command that cannot be started, and a missing command', async () => {
    expect(await codeOf(transcribe(client.process.start({ process: { cmd: '/no/such/program' } })))).toBe(
      Code.InvalidArgument,
    );
    expect(await codeOf(transcribe(client.process.start({})))).toBe(Code.InvalidArgument);
    const nul = { cmd: 'echo', envs: { A: 'x\0y' } };
    expect(await codeOf(transcribe(client.process.start({ process: nul })))).toBe(Code.InvalidArgument);
  });

  it('ends with the process, not with its left-over children', async () => {
    const said = await run('sleep 300 & echo $!');
    expect(said.end?.exitCode).toBe(0);
    const left = Number(said.stdout);
    expect(await isGone(left)).toBe(false);
    process.kill(left, 'SIGKILL');
  });

  it('kills the whole process group at the timeout', async () => {
    let child = 0;
    const stream = client.process.start({ process: shell('sleep 300 & echo $!; wait') }, { timeoutMs: 1000 });
    const failed = await transcribe(stream, (said) => {
      child = Number(said.stdout);
      return false;
    }).catch((thrown: ConnectError) => thrown.code);
    expect(failed).toBe(Code.DeadlineExceeded);
    await eventually(() => isGone(child));
  });

  it('kills it at the timeout even when the stream was closed before', async () => {
    const stream = client.process.start({ process: shell('echo up; sleep 300') }, { timeoutMs: 1000 });
    const said = await transcribe(stream, ({ stdout }) => stdout !== '');
    expect(await isGone(said.pid)).toBe(false);
    await eventually(() => isGone(said.pid));
    const late = await transcribe(client.process.connect({ process: pid(said.pid) }));
    expect(late.end?.status).toBe('signal: killed');
  });

  it('treats a timeout of 0, or one too long for a timer, as none', async () => {
    for (const timeout of ['0', '9999999999']) {
      const headers = { 'connect-timeout-ms': timeout };
      const said = await transcribe(
        client.process.start({ process: shell('sleep 0.1; echo done') }, { headers }),
      );
      expect(said.stdout).toBe('done\n');
    }
  });

  it('sends keepalive messages while the process is quiet', async () => {
    const stream = client.process.start(
      { process: shell('sleep 300') },
      { headers: { 'keepalive-ping-interval': '1' } },
    );
    const said = await transcribe(stream, ({ keepalives }) => keepalives > 0);
    expect(said.keepalives).toBe(1);
    await client.process.sendSignal({ process: pid(said.pid), signal: Signal.SIGKILL });
  });
});

describe('Connect', () => {
  it('continues after a closed stream, and has the output from the beginning', async () => {
    const first = await startUntil(
      'echo early; read line; echo late $line',
      ({ stdout }) => stdout === 'early\n',
    );
    await client.process.sendInput({
      process: pid(first.pid),
      input: { input: { case: 'stdin', value: Buffer.from('x\n') } },
    });
    const second = await transcribe(client.process.connect({ process: pid(first.pid) }));
    expect(second).toMatchObject({ pid: first.pid, droppedBytes: 0, stdout: 'early\nlate x\n' });
    expect(second.end?.exitCode).toBe(0);
  });

  it('finds a process by its tag, also after its end', async () => {
    await run('echo tagged', { tag: 'build' });
    const said = await transcribe(
      client.process.connect({ process: { selector: { case: 'tag', value: 'build' } } }),
    );
    expect(said.stdout).toBe('tagged\n');
    expect(said.end?.status).toBe('exit status 0');
  });

  it('keeps the newest output and reports how many bytes were dropped', async () => {
    const first = await startUntil(
      'echo up; read go; yes | head -c 3000000; printf END; read',
      ({ stdout }) => stdout !== '',
    );
    const input = { input: { case: 'stdin' as const, value: Buffer.from('go\n\n') } };
    await client.process.sendInput({ process: pid(first.pid), input });
    await eventually(
      async () => !(await client.process.list({})).processes.some((each) => each.pid === first.pid),
    );
    const late = await transcribe(client.process.connect({ process: pid(first.pid) }));
    expect(late.stdout.endsWith('END')).toBe(true);
    expect(late.stdout.length).toBeGreaterThan(500_000);
    expect(late.stdout.length).toBeLessThanOrEqual(1024 * 1024);
    expect(late.droppedBytes + late.stdout.length).toBe('up\n'.length + 3_000_000 + 'END'.length);
  });

  it('gives two readers the same output', async () => {
    const first = await startUntil('echo a; read; echo b', ({ stdout }) => stdout !== '');
    const both = [1, 2].map(() => transcribe(client.process.connect({ process: pid(first.pid) })));
    await client.process.closeStdin({ process: pid(first.pid) });
    expect((await Promise.all(both)).map(({ stdout }) => stdout)).toEqual(['a\nb\n', 'a\nb\n']);
  });

  it('answers not_found for a process that never existed', async () => {
    expect(await codeOf(transcribe(client.process.connect({ process: pid(4_000_000) })))).toBe(Code.NotFound);
    expect(await codeOf(transcribe(client.process.connect({})))).toBe(Code.InvalidArgument);
  });
});

describe('List', () => {
  it('shows running processes as they were requested', async () => {
    const said = await startUntil('echo up; read', ({ stdout }) => stdout !== '', { tag: 'listed' });
    const { processes } = await client.process.list({});
    const found = processes.find((process) => process.pid === said.pid);
    expect(found).toMatchObject({
      tag: 'listed',
      config: { cmd: '/bin/bash', args: ['-c', 'echo up; read'] },
    });
    await client.process.sendSignal({ process: pid(said.pid), signal: Signal.SIGKILL });
  });
});

describe('input', () => {
  it('reaches the process, and so does its end', async () => {
    const cat = await startUntil('echo up; cat', ({ stdout }) => stdout !== '');
    await client.process.sendInput({
      process: pid(cat.pid),
      input: { input: { case: 'stdin', value: Buffer.from('one ') } },
    });
    await client.process.streamInput(
      (async function* (): AsyncGenerator<MessageInitShape<typeof StreamInputRequestSchema>> {
        yield { event: { case: 'start' as const, value: { process: pid(cat.pid) } } };
        yield { event: { case: 'keepalive' as const, value: {} } };
        for (const word of ['two ', 'three']) {
          const input = { input: { case: 'stdin' as const, value: Buffer.from(word) } };
          yield { event: { case: 'data' as const, value: { input } } };
        }
      })(),
    );
    await client.process.closeStdin({ process: pid(cat.pid) });
    const said = await transcribe(client.process.connect({ process: pid(cat.pid) }));
    expect(said.stdout).toBe('up\none two three');
  });

  it('is refused when the process has no such input', async () => {
    const without = await startUntil('echo up; sleep 300', ({ stdout }) => stdout !== '', { stdin: false });
    const stdin = { input: { case: 'stdin' as const, value: Buffer.from('x') } };
    const pty = { input: { case: 'pty' as const, value: Buffer.from('x') } };
    expect(await codeOf(client.process.sendInput({ process: pid(without.pid), input: stdin }))).toBe(
      Code.FailedPrecondition,
    );
    expect(await codeOf(client.process.sendInput({ process: pid(without.pid), input: pty }))).toBe(
      Code.FailedPrecondition,
    );
    expect(await codeOf(client.process.closeStdin({ process: pid(without.pid) }))).toBe(
      Code.FailedPrecondition,
    );
    expect(
      await codeOf(client.process.update({ process: pid(without.pid), pty: { size: { cols: 1, rows: 1 } } })),
    ).toBe(Code.FailedPrecondition);
    await client.process.sendSignal({ process: pid(without.pid), signal: Signal.SIGKILL });
    expect(await codeOf(client.process.sendInput({ process: pid(4_000_000), input: stdin }))).toBe(
      Code.NotFound,
    );
  });

  it('must name the process in the first message', async () => {
    const nameless = (async function* () {
      yield { event: { case: 'data' as const, value: {} } };
    })();
    expect(await codeOf(client.process.streamInput(nameless))).toBe(Code.InvalidArgument);
  });
});

describe('SendSignal', () => {
  it('kills a process that ignores SIGTERM, and its children, with SIGKILL', async () => {
    const said = await startUntil(
      'trap "" TERM; sleep 300 & echo $!; while :; do wait; done',
      ({ stdout }) => stdout !== '',
    );
    const child = Number(said.stdout);
    await client.process.sendSignal({ process: pid(said.pid), signal: Signal.SIGTERM });
    expect(await isGone(said.pid)).toBe(false);
    await client.process.sendSignal({ process: pid(said.pid), signal: Signal.SIGKILL });
    const { end } = await transcribe(client.process.connect({ process: pid(said.pid) }));
    expect(end).toEqual({ exitCode: -1, exited: false, status: 'signal: killed', error: 'signal: killed' });
    await eventually(() => isGone(child));
  });

  it('answers not_found for a process that does not exist or has ended', async () => {
    const { pid: gone } = await run('true');
    expect(await codeOf(client.process.sendSignal({ process: pid(gone), signal: Signal.SIGKILL }))).toBe(
      Code.NotFound,
    );
    expect(await codeOf(client.process.sendSignal({ process: pid(4_000_000), signal: Signal.SIGTERM }))).toBe(
      Code.NotFound,
    );
  });

  it('accepts only SIGTERM and SIGKILL', async () => {
    const said = await startUntil('echo up; read', ({ stdout }) => stdout !== '');
    expect(await codeOf(client.process.sendSignal({ process: pid(said.pid) }))).toBe(Code.InvalidArgument);
    await client.process.sendSignal({ process: pid(said.pid), signal: Signal.SIGTERM });
  });
});

describe('an unknown user', () => {
  it('starts nothing', async () => {
    const call = transcribe(
      client.process.start({ process: shell('true') }, { headers: asUser('nosuchuser') }),
    );
    expect(await codeOf(call)).toBe(Code.Unauthenticated);
  });

  it('is distinguished from a wrong token, in every kind of call', async () => {
    const meant = (call: Promise<unknown>) => call.catch((thrown: unknown) => agentError(thrown).code);
    const headers = asUser('nosuchuser');
    const asked = [
      transcribe(client.process.start({ process: shell('true') }, { headers })),
      client.filesystem.stat({ path: '/' }, { headers }),
      client.files.read('/etc/passwd', { user: 'nosuchuser' }),
      client.files.write('/tmp/x', '', { user: 'nosuchuser' }),
    ];
    expect(await Promise.all(asked.map(meant))).toEqual(Array(asked.length).fill('invalid_request'));
    await client.init({ accessToken: 'secret' });
    const refused = [
      transcribe(client.process.start({ process: shell('true') }, { headers })),
      client.filesystem.stat({ path: '/' }),
      client.files.read('/etc/passwd', { user: 'nosuchuser' }),
      client.envs(),
    ];
    expect(await Promise.all(refused.map(meant))).toEqual(Array(refused.length).fill('unauthenticated'));
    await client.init({ accessToken: '' });
  });
});

describe('the end of a process', () => {
  it('is reported without reading output, and at once for an ended process', async () => {
    await startUntil('read line; exit 5', ({ pid: started }) => started > 0, { tag: 'one' });
    await startUntil('sleep 1000', ({ pid: started }) => started > 0, { tag: 'two' });
    const waiting = client.nextEnd(['two', 'one']);
    const process = { selector: { case: 'tag' as const, value: 'one' } };
    await client.process.closeStdin({ process });
    const end = { exited: true, exitCode: 5, status: 'exit status 5' };
    expect(await waiting).toEqual({ tag: 'one', end });
    expect(await client.nextEnd(['one'])).toEqual({ tag: 'one', end });
  });

  it('is absent for an unknown tag, and an invalid body is refused', async () => {
    expect(await client.nextEnd(['nobody'])).toEqual({ tag: 'nobody', end: null });
    await expect(client.nextEnd([])).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it('is no longer waited for when the client leaves', async () => {
    const left = new AbortController();
    await startUntil('sleep 1000', ({ pid: started }) => started > 0, { tag: 'three' });
    const waiting = client.nextEnd(['three'], { signal: left.signal });
    left.abort();
    await expect(waiting).rejects.toThrow();
  });
});
