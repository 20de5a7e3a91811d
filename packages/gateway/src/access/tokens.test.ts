import { randomBytes } from 'node:crypto';
import { systemClock } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { Tokens, type UsedLinks } from './tokens.ts';

const ID = 'sbx_aaaaaaaaaaaaaaaaaaaa' as SandboxId;
const OTHER = 'sbx_bbbbbbbbbbbbbbbbbbbb' as SandboxId;
const secret = randomBytes(32);

function tokens(usedLinks?: UsedLinks): Tokens {
  return new Tokens({ secret, clock: systemClock, randomBytes, usedLinks });
}

function sharedByNodes(): UsedLinks {
  const used = new Set<string>();
  return { use: async (nonce) => used.size < used.add(nonce).size };
}

describe('a one-time link to a private preview', () => {
  it('works once, at any node, for its own sandbox', async () => {
    const usedLinks = sharedByNodes();
    const [a, b] = [tokens(usedLinks), tokens(usedLinks)];
    const { token } = a.link(ID, 60_000);
    expect(await b.useLink(OTHER, token)).toBe(false);
    expect(await b.useLink(ID, token)).toBe(true);
    expect(await a.useLink(ID, token)).toBe(false);
  });

  it('does not outlive a server that is alone, which cannot know any more whether it was used', async () => {
    const { token } = tokens().link(ID, 60_000);
    expect(await tokens().useLink(ID, token)).toBe(false);
  });

  it('does not work after its time', async () => {
    const alone = tokens();
    expect(await alone.useLink(ID, alone.link(ID, -1).token)).toBe(false);
  });
});
