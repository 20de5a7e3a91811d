import { describe, expect, it } from 'vitest';
import { output, ProgramFailure, run } from './program.ts';

const printed = async (...args: Parameters<typeof output>) => {
  let text = '';
  for await (const chunk of output(...args)) text += chunk.toString();
  return text;
};

describe('running a program', () => {
  it('gives it its arguments and its input as they are', async () => {
    expect(await printed('printf', ['%s|', 'a b', '$(id)', ''])).toBe('a b|$(id)||');
    expect(await printed('cat', [], {}, [Buffer.from('one '), Buffer.from('two')])).toBe('one two');
  });

  it('fails with its status and what it said', async () => {
    const failure = await run('sh', ['-c', 'echo sorry >&2; exit 3']).catch((thrown: unknown) => thrown);
    expect(failure).toBeInstanceOf(ProgramFailure);
    expect(failure).toMatchObject({ status: 3, message: 'sh ended with 3: sorry' });
  });

  it('says so when there is no such program', async () => {
    await expect(run('no-such-program', [])).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('does not mind a program that reads only what it needs', async () => {
    const endless = (function* () {
      for (;;) yield Buffer.alloc(1 << 16, 'x');
    })();
    expect(await printed('head', ['-c', '3'], {}, endless)).toBe('xxx');
  });

  it('fails with the cause when its input fails', async () => {
    const failing = (async function* () {
      yield Buffer.from('start');
      throw new Error('no more');
    })();
    await expect(printed('cat', [], {}, failing)).rejects.toThrow('no more');
  });

  it('is over when it is told to stop: nothing of it runs on', async () => {
    const stop = new AbortController();
    const chunks = output('sh', ['-c', 'echo $$; exec sleep 1000'], { signal: stop.signal });
    const { value } = await chunks.next();
    stop.abort(new Error('enough'));
    await expect(chunks.next()).rejects.toThrow('enough');
    expect(() => process.kill(Number(value), 0)).toThrow('ESRCH');
  });

  it('is ended with whoever reads it', async () => {
    let pid = 0;
    for await (const chunk of output('sh', ['-c', 'echo $$; exec sleep 1000'])) {
      pid = Number(chunk);
      break;
    }
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });
});
