import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cachedCheckpoint, InstanceFiles } from './instance-files.ts';

describe('the record of an instance', () => {
  const instance = { sandboxId: 'sbx_00000000000000000000', generation: 1 } as const;
  const checkpoint = 'ckpt_00000000000000000000';
  /** As a file of an earlier version has it. */
  const OLD = {
    version: 1,
    container: { id: 'abcdef-berth-0123456789ab', bundle: '/b', logs: '/l', netns: null },
    rootfs: '/r',
    root: 'own',
    upper: 'layer',
    lower: [],
    merged: null,
    tools: 'tools',
    system: null,
    guestAddress: '10.0.0.2',
    token: 'token',
    credential: 'credential',
    network: {},
    resources: {},
    sealedFor: null,
  };
  let top: string;
  let files: InstanceFiles;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-i-'));
    files = new InstanceFiles(top);
    await files.make(instance);
  });
  afterEach(() => rm(top, { recursive: true }));

  const { record: name } = new InstanceFiles('').paths(instance);

  it.each([
    { what: 'of a running instance', fields: {}, capturedFor: null, cached: null },
    {
      what: 'of an instance whose upper layer is sealed',
      fields: { sealedFor: checkpoint, warmFor: null },
      capturedFor: { checkpoint, sealed: 'upper' },
      cached: null,
    },
    {
      what: 'of an instance with a sealed copy',
      fields: { warmFor: checkpoint },
      capturedFor: { checkpoint, sealed: 'copy' },
      cached: checkpoint,
    },
    {
      what: 'that names both, which is taken for the one that is never thawed',
      fields: { sealedFor: checkpoint, warmFor: 'ckpt_00000000000000000001' },
      capturedFor: { checkpoint, sealed: 'upper' },
      cached: null,
    },
  ])('in the format of an earlier version is read: $what', async ({ fields, capturedFor, cached }) => {
    await writeFile(join(top, name), JSON.stringify({ ...OLD, ...fields }));
    const record = files.read(instance);
    expect(record).toMatchObject({ upper: 'layer', capturedFor });
    expect(record && cachedCheckpoint(record)).toBe(cached);
  });

  it.each(['upper', 'copy'] as const)('is written in the same format and read again: %s', async (sealed) => {
    await writeFile(join(top, name), JSON.stringify(OLD));
    const record = files.read(instance);
    if (record === undefined) throw new Error('It was not read.');
    const captured = { ...record, capturedFor: { checkpoint, sealed } } as const;
    await files.write(instance, captured);
    const stored = JSON.parse(await readFile(join(top, name), 'utf8'));
    expect(stored).toMatchObject({
      sealedFor: sealed === 'upper' ? checkpoint : null,
      warmFor: sealed === 'copy' ? checkpoint : null,
    });
    expect(files.read(instance)).toEqual(captured);
  });
});
