import { describe, expect, it } from 'vitest';
import { pathPattern } from './path-pattern.ts';

describe('a pattern of paths', () => {
  it.each([
    ['*', ['a', '.env', '{a,b}'], ['a/b']],
    ['*.txt', ['a.txt', '.a.txt'], ['a.txt2', 'b/a.txt', 'atxt']],
    ['**', ['a', '.git/config'], []],
    ['**/*.log', ['x.log', 'a/x.log', '.cache/b/x.log'], ['x.log/y']],
    ['a/**/b', ['a/b', 'a/.x/y/b'], ['ab']],
    ['a?c', ['abc', 'a.c'], ['ac', 'a/c']],
    ['[a-c][^x]', ['ay', 'c.'], ['ax', 'dy', 'a/']],
    ['a[[]1]', ['a[1]'], ['a1']],
    ['{a,b}', ['{a,b}'], ['a']],
    ['+(a)$', ['+(a)$'], ['a']],
    ['a\\*', ['a*'], ['ab']],
    ['a[', ['a['], ['a']],
  ])('%s', (pattern, matching, others) => {
    const matches = pathPattern(pattern);
    expect([matching.filter(matches), others.filter(matches)]).toEqual([matching, []]);
  });
});
