import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newInstance } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InstanceFiles } from '../instance/instance-files.ts';
import { checkRunscUse } from './doctor.ts';

describe('what doctor says of the runsc programs in use', () => {
  let dataDir: string;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'torpor-doctor-'));
  });
  afterEach(() => rm(dataDir, { recursive: true }));

  /** A warm sandbox is paused, and its instance has a record as long as it is kept. */
  async function recordInstance(runsc: string, warmFor: string | null = null): Promise<void> {
    const root = join(dataDir, 'gvisor/instances');
    await mkdir(root, { recursive: true });
    const instance = newInstance();
    const files = new InstanceFiles(root);
    await files.make(instance);
    const record = {
      version: 1,
      container: { id: 'container', bundle: '/b', logs: '/l', netns: null },
      rootfs: '/r',
      root: 'own',
      upper: 'layer',
      lower: [],
      merged: null,
      tools: 'tools',
      system: null,
      runsc,
      guestAddress: '10.0.0.2',
      token: 'token',
      credential: 'credential',
      network: {},
      resources: {},
      sealedFor: null,
      warmFor,
    };
    await writeFile(files.paths(instance).record, JSON.stringify(record));
  }

  it('counts running and warm sandboxes apart, for each version', async () => {
    const program = join(dataDir, 'checkpoints/programs/runsc/new');
    await mkdir(program, { recursive: true });
    await writeFile(join(program, 'version'), 'release-20260701.0');
    await recordInstance('new');
    await recordInstance('new', 'ckpt_00000000000000000000');
    await recordInstance('removed');
    const { ok, detail } = await checkRunscUse({ dataDir, signal: new AbortController().signal });
    expect(ok).toBe(true);
    expect(detail.split('; ').toSorted()).toEqual([
      'a runsc that is no longer kept (removed): 1 running, 0 warm, 0 checkpoints',
      'release-20260701.0: 1 running, 1 warm, 0 checkpoints',
    ]);
  });

  it('reads a data directory that no server has used', async () => {
    const check = await checkRunscUse({ dataDir, signal: new AbortController().signal });
    expect(check.detail).toBe('none');
  });
});
