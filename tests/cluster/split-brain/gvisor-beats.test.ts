import { appendFile, mkdir, mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GvisorBeatReader } from './gvisor-beats.ts';

describe('the beats of a sandbox in gVisor', () => {
  let top: string;
  let reader: GvisorBeatReader;
  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-beats-'));
    reader = new GvisorBeatReader(() => [top]);
  });
  afterEach(async () => {
    reader.stop();
    await rm(top, { recursive: true });
  });

  async function instance(generation: number, upper: string, container: string): Promise<string> {
    const record = join(top, 'gvisor', 'instances', 'sbx_a', String(generation));
    const home = join(top, 'checkpoints', 'layers', upper, 'fs', 'home', 'user');
    await mkdir(record, { recursive: true });
    await mkdir(home, { recursive: true });
    await writeFile(
      join(record, 'instance.json'),
      JSON.stringify({ version: 1, container: { id: container, bundle: '' }, upper }),
    );
    return join(home, '.beats');
  }

  it('are read from the layer of each instance, once also when a layer was copied up', async () => {
    await writeFile(await instance(1, 'lay_1', 'first'), '1000\n1500\n');
    await expect.poll(() => reader.seen).toBe(2);
    await writeFile(await instance(2, 'lay_2', 'second'), '1000\n1500\n2000\n25');
    await expect.poll(() => reader.seen).toBe(3);
    expect(reader.stop().get('sbx_a')).toEqual([
      { at: 1_000, run: 'first' },
      { at: 1_500, run: 'first' },
      { at: 2_000, run: 'second' },
    ]);
  });

  it('are still read when the record and the layer were removed', async () => {
    const file = await instance(1, 'lay_1', 'first');
    const handle = await open(file, 'a');
    await appendFile(handle, '1000\n');
    await expect.poll(() => reader.seen).toBe(1);
    await rm(join(top, 'gvisor'), { recursive: true });
    await rm(join(top, 'checkpoints'), { recursive: true });
    await appendFile(handle, '9000\n');
    await handle.close();
    await expect.poll(() => reader.seen).toBe(2);
  });
});
