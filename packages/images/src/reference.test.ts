import { describe, expect, it } from 'vitest';
import { parseReference } from './reference.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;

describe('the name of an image', () => {
  it.each([
    ['debian', 'docker.io', 'library/debian', 'latest', null],
    ['org/app:1.2', 'docker.io', 'org/app', '1.2', null],
    ['ghcr.io/org/app', 'ghcr.io', 'org/app', 'latest', null],
    ['localhost/app:1', 'localhost', 'app', '1', null],
    ['127.0.0.1:5000/app', '127.0.0.1:5000', 'app', 'latest', null],
    [`example.com/app@${DIGEST}`, 'example.com', 'app', null, DIGEST],
    [`example.com/app:1@${DIGEST}`, 'example.com', 'app', '1', DIGEST],
  ])('%s is understood', (text, registry, repository, tag, digest) => {
    expect(parseReference(text)).toEqual({ text, registry, repository, tag, digest });
  });

  it.each([
    '',
    'App',
    'a b',
    'app:',
    'app@sha256:short',
    'app@md5:aa',
    '../app',
    'a//b',
    'http://example.com/app',
    'user:pass@example.com/app',
    'example.com:99999999/app',
    'example.com/a/../b',
  ])('"%s" is refused', (text) => {
    expect(() => parseReference(text)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  });
});
