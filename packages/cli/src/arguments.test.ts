import { describe, expect, it } from 'vitest';
import { guardCommand, readCommandLine, similar } from './arguments.ts';

describe('the command line', () => {
  it.each([
    [['ls', '-q'], 'ls', ['-q']],
    [['sandbox', 'resume', 'sbx_1', '--json'], 'resume', ['sbx_1', '--json']],
    [['--json', '--url', 'http://a', 'get', 'web'], 'get', ['--json', '--url', 'http://a', 'web']],
    [['--org-id', 'ls', 'sandbox', 'ls'], 'ls', ['--org-id', 'ls']],
    [['--help'], undefined, ['--help']],
    [[], undefined, []],
  ])('%j names %s', (argv, name, rest) => {
    expect(readCommandLine(argv)).toEqual({ name, rest });
  });
});

describe('a command that ends in another command line', () => {
  const takesValue = (option: string) => ['--cwd', '-e'].includes(option);

  it.each([
    ['web ls -l --json', 'web -- ls -l --json'],
    ['--json web ls -l', '--json web -- ls -l'],
    ['web --cwd /tmp ls -l', 'web --cwd /tmp -- ls -l'],
    ['web --cwd=/tmp -e A=1 ls', 'web --cwd=/tmp -e A=1 -- ls'],
    ['web -- ls -l', 'web -- ls -l'],
    ['web', 'web'],
  ])('separates the options: %s', (given, guarded) => {
    expect(guardCommand(given.split(' '), takesValue, 1).join(' ')).toBe(guarded);
  });
});

describe('a misspelt name', () => {
  it.each([
    ['puase', 'pause'],
    ['resum', 'resume'],
    ['snapshots', 'snapshot'],
  ])('%s is similar to %s', (name, meant) => {
    expect(similar(name, ['pause', 'resume', 'snapshot', 'ls'])).toContain(meant);
  });

  it('has no suggestions when nothing is similar', () => {
    expect(similar('frobnicate', ['pause', 'resume', 'ls'])).toEqual([]);
  });
});
