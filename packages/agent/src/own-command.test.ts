import { describe, expect, it } from 'vitest';
import { commandOf } from './own-command.ts';

describe('starting this program again', () => {
  it('takes the binary that runs', () => {
    const line = ['node', '/app/agent.mjs', '--listen', '1'];
    expect(
      commandOf(line, { execPath: '/usr/bin/node', argumentCount: 2, script: '/app/agent.mjs' }),
    ).toEqual({
      command: '/usr/bin/node',
      args: ['/app/agent.mjs'],
    });
  });

  it('goes through the dynamic linker when that is how it was started', () => {
    const line = [
      '/t/ld-linux-x86-64.so.2',
      '--library-path',
      '/t/lib',
      '/t/node',
      'agent.mjs',
      '--root',
      '/x',
    ];
    const own = { execPath: '/t/ld-linux-x86-64.so.2', argumentCount: 2, script: '/t/agent.mjs' };
    expect(commandOf(line, own)).toEqual({
      command: '/t/ld-linux-x86-64.so.2',
      args: ['--library-path', '/t/lib', '/t/node', '/t/agent.mjs'],
    });
  });
});
