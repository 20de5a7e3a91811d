import { describe, expect, it } from 'vitest';
import { parseDockerfile } from './parse.ts';

const only = (line: string) => parseDockerfile(`FROM base\n${line}`).stages[0]?.instructions[0];

describe('a Dockerfile', () => {
  it('has stages with instructions, and the lines where they begin', () => {
    const { args, stages } = parseDockerfile(
      [
        '# syntax=docker/dockerfile:1',
        'ARG V=12',
        `FROM debian:\${V} AS Build`,
        'RUN apt-get update && \\',
        '    # a comment',
        '    apt-get install -y curl',
        '',
        'from build',
        'copy --from=build --chown=app:app a "b c" /dst/',
      ].join('\n'),
    );
    expect(args).toMatchObject([{ name: 'V', value: '12' }]);
    expect(stages).toMatchObject([
      { line: 3, from: `debian:\${V}`, name: 'build' },
      { line: 8, from: 'build', name: null },
    ]);
    expect(stages[0]?.instructions).toMatchObject([
      { is: 'run', line: 4, command: 'apt-get update &&     apt-get install -y curl' },
    ]);
    expect(stages[1]?.instructions).toMatchObject([
      {
        is: 'copy',
        line: 9,
        text: 'COPY --from=build --chown=app:app a "b c" /dst/',
        copy: { from: 'build', chown: 'app:app', paths: 'a "b c" /dst/' },
      },
    ]);
  });

  it.each([
    ['RUN ["/bin/echo", "two words"]', { is: 'run', command: ['/bin/echo', 'two words'] }],
    ['RUN [ -e /x ] && true', { is: 'run', command: '[ -e /x ] && true' }],
    ['CMD serve --port 3', { is: 'cmd', command: 'serve --port 3' }],
    ['ENTRYPOINT ["a"]', { is: 'entrypoint', command: ['a'] }],
    ['COPY ["a b", "/c d/"]', { is: 'copy', copy: { paths: ['a b', '/c d/'], isAdd: false } }],
    ['ADD a /b', { is: 'copy', copy: { isAdd: true } }],
    [
      `ENV A=1 B="two words" C='$A'`,
      {
        is: 'env',
        pairs: [
          ['A', '1'],
          ['B', '"two words"'],
          ['C', "'$A'"],
        ],
      },
    ],
    ['ENV OLD style value', { is: 'env', pairs: [['OLD', 'style value']] }],
    ['ARG NAME', { is: 'arg', args: [{ name: 'NAME', value: undefined }] }],
    [
      'ARG A=1 B="two words" C',
      {
        is: 'arg',
        args: [
          { name: 'A', value: '1' },
          { name: 'B', value: '"two words"' },
          { name: 'C', value: undefined },
        ],
      },
    ],
    ['WORKDIR /srv/$A', { is: 'workdir', value: '/srv/$A' }],
    ['SHELL ["/bin/bash", "-c"]', { is: 'shell', words: ['/bin/bash', '-c'] }],
    ['LABEL a=b', { is: 'label' }],
    ['RUN <<END\necho one\n# two\nEND', { is: 'run', command: 'echo one\n# two\n', text: 'RUN <<END' }],
    ['RUN <<-END\n\techo one\n\tEND', { is: 'run', command: 'echo one\n' }],
    ['RUN cat <<END > /x\n$A\nEND', { is: 'run', command: 'cat <<END > /x\n$A\nEND' }],
    [
      'COPY --chown=1 <<one <<"two.txt" other /dst/\n$A\none\n$B\ntwo.txt',
      {
        is: 'copy',
        copy: {
          paths: 'other /dst/',
          chown: '1',
          inline: [
            { name: 'one', content: '$A\n', isExpanded: true },
            { name: 'two.txt', content: '$B\n', isExpanded: false },
          ],
        },
      },
    ],
    ['EXPOSE 80 443/tcp', { is: 'expose', value: '80 443/tcp' }],
  ])('understands %s', (line, expected) => {
    expect(only(line)).toMatchObject(expected);
  });

  it.each([
    'FROM scratch',
    'FROM --platform=linux/arm64 base',
    'FROM a b c',
    'RUN --mount=type=cache,target=/x true',
    'RUN <<END\n#!/usr/bin/python3\nEND',
    'COPY <<END\nx\nEND',
    'COPY --from=base <<END /x\nx\nEND',
    'COPY --link a /b',
    'COPY a',
    'COPY --chmod=u+x a /b',
    'ADD https://example.com/x /x',
    'ONBUILD RUN true',
    'HEALTHCHECK CMD true',
    'VOLUME /data',
    'STOPSIGNAL 9',
    'USER app:app',
    'SHELL bash',
    'ARG',
    'BOGUS x',
  ])('refuses %s with its line', (line) => {
    expect(() => parseDockerfile(`FROM base\n\n${line}`)).toThrow(
      expect.objectContaining({
        name: 'BuildFailure',
        line: 3,
        message: expect.stringContaining('Line 3: '),
      }),
    );
  });

  it('refuses steps before the first FROM, and a file without FROM', () => {
    expect(() => parseDockerfile('RUN true\nFROM base')).toThrow('Line 1: ');
    expect(() => parseDockerfile('ARG A')).toThrow('has no FROM');
  });
});
