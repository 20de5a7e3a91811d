import { mkdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { SealedCheckpoint } from '@torpor/engine';
import { failureOf, nextOf, paused, sealed, unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inodeOf, makeProcessWorld, type ProcessWorld } from '../testing/process-world.ts';
import { detectsMappedWrites } from './workspace/baseline.ts';

let world: ProcessWorld;

beforeEach(async () => {
  world = await makeProcessWorld();
});
afterEach(() => world.dispose());

describe('checkpoints', () => {
  it('have the same content as the workspace over three cycles with edits', async () => {
    let instance = await world.started();
    await world.run(instance, 'mkdir -p src; for i in $(seq 50); do echo "file $i" > src/$i; done');
    const digest = 'find . -type f ! -path "./.torpor/*" | sort | xargs sha256sum';
    for (let cycle = 0; cycle < 3; cycle++) {
      const edit = `echo ${cycle} >> src/1; rm src/${cycle + 10}; mkdir d${cycle}; mv src/${cycle + 20} d${cycle}/`;
      expect(await world.run(instance, edit)).toEqual({ output: '', exitCode: 0 });
      const before = await world.run(instance, digest);
      const checkpoint = await paused(world, instance);
      instance = await world.started({}, checkpoint, nextOf(instance));
      expect(await world.run(instance, digest)).toEqual(before);
    }
  });

  it('share unchanged files with each other, and never with the running sandbox', async ({ skip }) => {
    skip(
      !(await detectsMappedWrites(world.instancesDir)),
      'the file system here does not notice every write',
    );
    const instance = await world.started();
    await world.run(instance, 'echo same > same; echo one > edited; touch -d "1 hour ago" same edited');
    const content = ({ path }: SealedCheckpoint, name: string) =>
      inodeOf(join(path ?? '', 'workspace', name));
    // Younger files may still change within the same timestamp.
    await expect
      .poll(async () => Date.now() - (await stat(join(world.home(instance), 'edited'))).ctimeMs)
      .toBeGreaterThan(200);
    const checkpoints: SealedCheckpoint[] = [];
    for (const text of ['two', 'three']) {
      const checkpoint = await sealed(world, instance);
      await world.runtime.thaw(instance, checkpoint.id, unhurried);
      checkpoints.push(checkpoint);
      await world.program.write(instance, 'edited', text);
    }
    const next = await world.started({}, await paused(world, instance), nextOf(instance));
    checkpoints.push(await sealed(world, next));

    const same = new Set(await Promise.all(checkpoints.map((one) => content(one, 'same'))));
    const edited = new Set(await Promise.all(checkpoints.map((one) => content(one, 'edited'))));
    expect([same.size, edited.size]).toEqual([1, 3]);
    expect(same).not.toContain(await inodeOf(join(world.home(next), 'same')));
  });

  it('do not keep the sandbox frozen when their baseline cannot be written', async () => {
    const instance = await world.started();
    const checkpoint = await sealed(world, instance);
    const remembered = join(world.home(instance), '../baseline.json');
    await rm(remembered, { force: true });
    await mkdir(join(remembered, 'in the way'), { recursive: true });
    await world.runtime.thaw(instance, checkpoint.id, unhurried);
    expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    await world.runtime.thaw(instance, checkpoint.id, unhurried);
  });

  it('are refused when another runtime made them', async () => {
    const foreign = { ...world.template, needs: { kind: 'gvisor' } };
    const inspection = world.runtime.checkUsable(foreign, unhurried);
    expect(await failureOf(inspection)).toMatchObject({ code: 'checkpoint_incompatible' });
    const newer = { ...world.template, needs: { ...world.template.needs, version: 2 } };
    const later = world.runtime.checkUsable(newer, unhurried);
    expect(await failureOf(later)).toMatchObject({ code: 'version_unsupported' });
  });
});
