import { describe, expect, it } from 'vitest';
import { type Command, parseSudo } from './arguments.ts';

function command(...args: string[]): Command {
  const asked = parseSudo(args);
  if (asked.is !== 'run') throw new Error(`not a command: ${JSON.stringify(asked)}`);
  return asked.command;
}

describe('the arguments of sudo', () => {
  it('mean a command as root, with all its arguments unchanged', () => {
    expect(command('apt-get', '-y', 'install', 'A=b')).toEqual({
      user: 'root',
      group: undefined,
      shell: 'none',
      words: ['apt-get', '-y', 'install', 'A=b'],
      assignments: {},
      keep: [],
      setHome: false,
      directory: undefined,
      background: false,
    });
  });

  it.each([
    [['-u', 'bob', 'id'], { user: 'bob', words: ['id'] }],
    [['-ubob', 'id'], { user: 'bob', words: ['id'] }],
    [['--user=bob', 'id'], { user: 'bob', words: ['id'] }],
    [['--user', 'bob', 'id'], { user: 'bob', words: ['id'] }],
    [['-nEu', 'bob', 'id'], { user: 'bob', keep: 'all' }],
    [['-n', '-H', 'id'], { setHome: true }],
    [['-g', 'www-data', 'id'], { group: 'www-data' }],
    [['-D', '/tmp', 'pwd'], { directory: '/tmp' }],
    [['-b', 'sleep', '1'], { background: true }],
    [['-E', 'env'], { keep: 'all' }],
    [['--preserve-env', 'env'], { keep: 'all' }],
    [['--preserve-env=A,B', '--preserve-env=C', 'env'], { keep: ['A', 'B', 'C'] }],
    [['A=1', 'B=x=y', 'env'], { assignments: { A: '1', B: 'x=y' }, words: ['env'] }],
    [['A=1', '-u', 'bob', 'env'], { assignments: { A: '1' }, user: 'bob' }],
    [['--', '-odd'], { words: ['-odd'] }],
    [['-u', 'bob', '--', 'A=1'], { words: ['A=1'], assignments: {} }],
    [['-S', '-p', 'Password:', 'id'], { words: ['id'] }],
    [['-i'], { shell: 'login', words: [] }],
    [['-s'], { shell: 'shell', words: [] }],
    [['-i', 'echo', 'hi'], { shell: 'login', words: ['echo', 'hi'] }],
    [['-k', 'id'], { words: ['id'] }],
    [['-'], { words: ['-'] }],
  ] as const)('%j', (args, expected) => {
    expect(command(...args)).toMatchObject(expected);
  });

  it.each([
    [['-l'], 'list'],
    [['-nl'], 'list'],
    [['-l', 'id'], 'list'],
    [['-v'], 'validate'],
    [['-k'], 'forget'],
    [['-K'], 'forget'],
    [['-V'], 'version'],
    [['--help'], 'help'],
  ])('%j means %s and runs no command', (args, expected) => {
    expect(parseSudo(args).is).toBe(expected);
  });

  it.each([[[]], [['-u']], [['--user']], [['-x', 'id']], [['--nothing', 'id']], [['-e', 'file']], [['A=1']]])(
    '%j are a mistake that is explained',
    (args) => {
      expect(parseSudo(args)).toEqual({ is: 'mistake', why: expect.stringMatching(/./) });
    },
  );
});
