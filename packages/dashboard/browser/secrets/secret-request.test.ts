import { describe, expect, it } from 'vitest';
import { draftOfSecret, EMPTY_SECRET, requestsText, secretRequestOf } from './secret-request.ts';

const view = {
  name: 'TOKEN',
  host: '*.example.com',
  header: 'X-Token',
  prefix: null,
  methods: ['GET', 'POST'],
  path: '/v1',
  createdAt: 1,
  updatedAt: 2,
};

describe('the form of a secret', () => {
  it('keeps the space after the prefix, and drops what a paste has left around the value', () => {
    const draft = { ...EMPTY_SECRET, name: 'KEY', host: ' api.example.com ', value: 'sk-1\n' };
    expect(secretRequestOf(draft)).toEqual({
      host: 'api.example.com',
      header: 'Authorization',
      prefix: 'Bearer ',
      value: 'sk-1',
    });
  });

  it('is filled from a secret without its value', () => {
    const draft = draftOfSecret(view);
    expect(draft.value).toBe('');
    expect(secretRequestOf({ ...draft, value: 'new' })).toEqual({
      host: '*.example.com',
      header: 'X-Token',
      methods: ['GET', 'POST'],
      path: '/v1',
      value: 'new',
    });
  });
});

describe('the requests that get a secret', () => {
  it('are all, or what its rules say', () => {
    expect(requestsText(view)).toBe('GET, POST /v1');
    expect(requestsText({ ...view, methods: null, path: null })).toBe('all');
  });
});
