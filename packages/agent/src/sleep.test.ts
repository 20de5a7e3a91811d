import { join } from 'node:path';
import { Signal } from '@torpor/envd';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../testing/running-agent.ts';
import { shell, transcribe } from '../testing/transcript.ts';

let agent: RunningAgent;

beforeAll(async () => {
  agent = await runAgent();
});

afterAll(() => agent.stop());

describe('an agent that was frozen and resumed', () => {
  it('still listens, knows its processes, and accepts a new identity', async () => {
    await agent.client.init({
      sandboxId: 'sbx_before',
      credential: 'first',
      accessToken: 'token',
      envs: { START: '1' },
    });
    const before = agent.connect({ accessToken: 'token' });
    const counter = await transcribe(
      before.process.start({
        process: shell('n=0; while read; do n=$((n+1)); echo $n; done'),
        stdin: true,
        tag: 'counter',
      }),
      ({ pid }) => pid > 0,
    );
    const line = { input: { case: 'stdin' as const, value: Buffer.from('\n') } };
    const selector = { selector: { case: 'pid' as const, value: counter.pid } };
    await before.process.sendInput({ process: selector, input: line });

    process.kill(-counter.pid, 'SIGSTOP');
    process.kill(agent.pid, 'SIGSTOP');
    before.close();
    process.kill(agent.pid, 'SIGCONT');
    process.kill(-counter.pid, 'SIGCONT');

    await agent.client.init(
      { sandboxId: 'sbx_after', credential: 'second', envs: { START: '2' }, timestamp: Date.now() },
      { credential: 'first' },
    );
    const after = agent.connect({ accessToken: 'token' });
    await after.process.sendInput({ process: selector, input: line });
    const said = await transcribe(after.process.connect({ process: selector }), ({ stdout }) =>
      stdout.includes('2'),
    );
    expect(said.stdout).toBe('1\n2\n');
    const fresh = await transcribe(after.process.start({ process: shell('echo $START $TORPOR_SANDBOX') }));
    expect(fresh.stdout).toBe('2 sbx_after\n');
    await after.files.write(join(agent.directory, 'a'), 'x');
    await after.process.sendSignal({ process: selector, signal: Signal.SIGKILL });
  });
});
