import { Code, type ConnectError } from '@connectrpc/connect';
import { type AgentClient, Signal } from '@torpor/envd';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';
import { startTerminal } from './terminal.ts';

let agent: RunningAgent;
let client: AgentClient;

beforeAll(async () => {
  agent = await runAgent();
  ({ client } = agent);
});

afterAll(() => agent.stop());

const pid = (value: number) => ({ selector: { case: 'pid' as const, value } });
const keys = (text: string) => ({ input: { case: 'pty' as const, value: Buffer.from(text) } });

describe('a terminal', () => {
  it('has the requested size, and can be resized', async () => {
    const process = { ...shell('stty size; read; stty size'), envs: { TERM: 'dumb' } };
    const first = await transcribe(
      client.process.start({ process, pty: { size: { cols: 91, rows: 31 } } }),
      ({ pty }) => pty.includes('31 91'),
    );
    await client.process.update({ process: pid(first.pid), pty: { size: { cols: 120, rows: 40 } } });
    await client.process.sendInput({ process: pid(first.pid), input: keys('\n') });
    const second = await transcribe(client.process.connect({ process: pid(first.pid) }));
    expect(second.pty).toContain('40 120');
    expect(second.end).toEqual({ exitCode: 0, exited: true, status: 'exit status 0' });
  });

  it('forwards keys, including the interrupt key', async () => {
    const process = shell('trap "echo interrupted; exit 9" INT; echo up; while :; do sleep 0.05; done');
    const started = await transcribe(
      client.process.start({ process, pty: { size: { cols: 80, rows: 24 } } }),
      ({ pty }) => pty.includes('up'),
    );
    await client.process.sendInput({ process: pid(started.pid), input: keys('\x03') });
    const said = await transcribe(client.process.connect({ process: pid(started.pid) }));
    expect(said.pty).toContain('interrupted');
    expect(said.end?.exitCode).toBe(9);
  });

  it('reports the signal that ended the process', async () => {
    const started = await transcribe(
      client.process.start({ process: shell('echo up; sleep 300'), pty: { size: { cols: 80, rows: 24 } } }),
      ({ pty }) => pty.includes('up'),
    );
    await client.process.sendSignal({ process: pid(started.pid), signal: Signal.SIGKILL });
    const { end } = await transcribe(client.process.connect({ process: pid(started.pid) }));
    expect(end).toMatchObject({ exitCode: -1, exited: false, status: 'signal: killed' });
  });

  it('loses no output written right before the end', async () => {
    const process = shell('stty -opost; head -c 2000000 /dev/zero | tr "\\0" x; printf END');
    const said = await transcribe(client.process.start({ process, pty: { size: { cols: 80, rows: 24 } } }));
    expect(said.pty).toHaveLength(2_000_003);
    expect(said.pty.endsWith('END')).toBe(true);
  });

  it('loses no output with a slow reader at the end', async () => {
    const command = 'stty -opost; head -c 6000 /dev/zero; sleep 0.3; head -c 6000 /dev/zero';
    const { cmd, args } = shell(command);
    // The ring is so small that the second half is written while the terminal is paused.
    const order = { command: cmd, args, cwd: '/', env: { PATH: process.env['PATH'] ?? '' }, keptBytes: 4096 };
    const { output, ended } = await startTerminal({ ...order, user: undefined }, { cols: 80, rows: 24 });
    const reader = output.attach();
    await ended;
    let bytes = 0;
    const { signal } = new AbortController();
    for (let chunk = await reader.next(signal); chunk; chunk = await reader.next(signal))
      bytes += chunk.bytes.length;
    expect(bytes).toBe(12_000);
  });

  it('refuses stdin input, and a size of zero', async () => {
    const started = await transcribe(
      client.process.start({ process: shell('echo up; sleep 300'), pty: { size: { cols: 80, rows: 24 } } }),
      ({ pty }) => pty.includes('up'),
    );
    const codeOf = (call: Promise<unknown>) => call.catch((thrown: ConnectError) => thrown.code);
    const process = pid(started.pid);
    const stdin = { input: { case: 'stdin' as const, value: Buffer.from('x') } };
    expect(await codeOf(client.process.sendInput({ process, input: stdin }))).toBe(Code.FailedPrecondition);
    expect(await codeOf(client.process.closeStdin({ process }))).toBe(Code.FailedPrecondition);
    const size = { cols: 0, rows: 10 };
    expect(await codeOf(client.process.update({ process, pty: { size } }))).toBe(Code.InvalidArgument);
    await client.process.sendSignal({ process, signal: Signal.SIGKILL });
    const bad = transcribe(client.process.start({ process: shell('true'), pty: { size } }));
    expect(await codeOf(bad)).toBe(Code.InvalidArgument);
  });
});
