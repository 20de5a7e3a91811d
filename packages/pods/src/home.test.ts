import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { homeIn } from './home.ts';

describe('the home of objects in a Kubernetes cluster', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'torpor-home-'));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  it('belongs to the data directory of a server that is alone, for good', async () => {
    const home = await homeIn(directory);
    expect(home).toMatch(/^[0-9a-f]{20}$/);
    expect(await homeIn(directory)).toBe(home);
  });

  it('is the same for all nodes', async () => {
    expect(await homeIn(directory, 'shared')).toBe('shared');
    expect(await homeIn(join(directory, 'other'), 'shared')).toBe('shared');
  });

  it('is not given up by a server that was alone and becomes a node: no server would find its objects', async () => {
    await homeIn(directory);
    await expect(homeIn(directory, 'shared')).rejects.toMatchObject({ code: 'conflict' });
  });
});
