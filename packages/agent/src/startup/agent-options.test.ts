import { describe, expect, it } from 'vitest';
import { parseListen, readOptions } from './agent-options.ts';

describe('where to listen', () => {
  it.each([
    ['49983', { host: '127.0.0.1', port: 49983 }],
    ['0.0.0.0:80', { host: '0.0.0.0', port: 80 }],
    ['[::]:80', { host: '::', port: 80 }],
    ['unix:/run/a.sock', { path: '/run/a.sock' }],
  ])('%s', (text, expected) => {
    expect(parseListen(text)).toEqual(expected);
  });

  it.each(['', 'port', '127.0.0.1', '127.0.0.1:99999'])('%j is refused', (text) => {
    expect(() => parseListen(text)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  });
});

describe('options', () => {
  it('come from flags before variables, and have a default port', () => {
    expect(readOptions([], {}).listen).toEqual({ host: '127.0.0.1', port: 49983 });
    const options = readOptions(['--root', '/a'], {
      TORPOR_AGENT_ROOT: '/b',
      TORPOR_AGENT_SANDBOX_ID: 'sbx_1',
    });
    expect(options).toMatchObject({ root: '/a', sandboxId: 'sbx_1', ownMachine: false });
  });

  it('accept descriptors to close, except the first three', () => {
    expect(readOptions([], {}).close).toEqual([]);
    expect(readOptions(['--close', '17,251'], {}).close).toEqual([17, 251]);
    for (const text of ['', '2', '17,', '-1', 'all', '0x11']) {
      expect(() => readOptions(['--close', text], {})).toThrow(
        expect.objectContaining({ code: 'invalid_request' }),
      );
    }
  });

  it('accept the credential only from a variable or a file, which no process list shows', () => {
    expect(readOptions([], { TORPOR_AGENT_CREDENTIAL: 'c' }).credential).toBe('c');
    expect(readOptions(['--credential-file', '/c'], {}).credentialFile).toBe('/c');
    expect(() => readOptions(['--credential', 'c'], {})).toThrow(
      expect.objectContaining({ code: 'invalid_request' }),
    );
  });
});
