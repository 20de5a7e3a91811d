import { describe, expect, it } from 'vitest';
import { ProgramFailure } from './program-failure.ts';
import { streamProgram } from './stream-program.ts';

async function outputOf(...args: Parameters<typeof streamProgram>): Promise<string> {
  let text = '';
  for await (const chunk of streamProgram(...args)) text += chunk.toString();
  return text;
}

describe('streamProgram', () => {
  it('passes arguments and input unchanged', async () => {
    expect(await outputOf('printf', ['%s|', 'a b', '$(id)', ''])).toBe('a b|$(id)||');
    expect(await outputOf('cat', [], { input: [Buffer.from('one '), Buffer.from('two')] })).toBe('one two');
  });

  it('fails with the exit status and stderr', async () => {
    const failure = await outputOf('sh', ['-c', 'echo sorry >&2; exit 3']).catch((thrown: unknown) => thrown);
    expect(failure).toBeInstanceOf(ProgramFailure);
    expect(failure).toMatchObject({ status: 3, message: 'sh failed: sorry' });
  });

  it('names a program that is not installed', async () => {
    await expect(outputOf('no-such-program', [])).rejects.toMatchObject({ code: 'capability_unsupported' });
  });

  it('accepts a program that reads only part of its input', async () => {
    const input = (function* () {
      for (;;) yield Buffer.alloc(1 << 16, 'x');
    })();
    expect(await outputOf('head', ['-c', '3'], { input })).toBe('xxx');
  });

  it('fails with the failure of the input', async () => {
    const input = (async function* () {
      yield Buffer.from('start');
      throw new Error('no more');
    })();
    await expect(outputOf('cat', [], { input })).rejects.toThrow('no more');
  });

  it('has ended the program when an abort rejects', async () => {
    const stop = new AbortController();
    const chunks = streamProgram('sh', ['-c', 'echo $$; exec sleep 1000'], { signal: stop.signal });
    const { value } = await chunks.next();
    stop.abort(new Error('enough'));
    await expect(chunks.next()).rejects.toThrow('enough');
    expect(() => process.kill(Number(value), 0)).toThrow('ESRCH');
  });

  it('ends the program when the consumer stops reading', async () => {
    let pid = 0;
    for await (const chunk of streamProgram('sh', ['-c', 'echo $$; exec sleep 1000'])) {
      pid = Number(chunk);
      break;
    }
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });
});
