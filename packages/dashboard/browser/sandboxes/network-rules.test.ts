import type { Network } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { EMPTY_NETWORK, networkDraftOf, networkLines, networkOf } from './network-rules.ts';

describe('the rules of a network, for people', () => {
  it('say that an allow list without a mode allows nothing else', () => {
    expect(networkLines({ allow: ['registry.npmjs.org'] })).toEqual([
      'nothing but what is allowed',
      'allowed: registry.npmjs.org',
    ]);
    expect(networkLines({})).toEqual(['public internet']);
  });

  it('name the secrets, with what narrows them', () => {
    const secrets = ['OPENAI_API_KEY', { name: 'GITHUB_TOKEN', methods: ['GET'], path: '/repos' }];
    expect(networkLines({ mode: 'internet', deny: ['evil.example'], secrets })).toEqual([
      'public internet',
      'denied: evil.example',
      'secrets: OPENAI_API_KEY, GITHUB_TOKEN (GET, /repos)',
    ]);
  });
});

describe('the form of a network', () => {
  it('means the network that it was filled from, with the rules of its secrets', () => {
    const network: Network = {
      mode: 'none',
      allow: ['*.example.com', '10.0.0.1:80'],
      deny: ['a.example.com'],
      secrets: [{ name: 'TOKEN', path: '/v1' }],
    };
    expect(networkOf(networkDraftOf(network), network)).toEqual(network);
  });

  it('sends no allow list for the public internet, where it would have no effect', () => {
    expect(networkOf({ ...EMPTY_NETWORK, allow: 'example.com', secrets: 'A B' })).toEqual({
      mode: 'internet',
      secrets: ['A', 'B'],
    });
  });
});
