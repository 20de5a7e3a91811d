import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  builtInSpec,
  failureOf,
  NO_SPEC,
  newInstance,
  sealing,
  startFrom,
  unhurried,
} from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeProcessWorld, type ProcessWorld, processesKnowing } from '../testing/process-world.ts';

let world: ProcessWorld;

beforeEach(async () => {
  world = await makeProcessWorld();
});
afterEach(() => world.dispose());

describe('the process runtime', () => {
  it('refuses network restrictions, memory and unknown templates', async () => {
    for (const network of [
      { mode: 'none' as const },
      { allow: ['example.com'] },
      { deny: ['example.com'] },
    ]) {
      const start = startFrom(world, newInstance(), world.template, 'files', { ...NO_SPEC, network });
      expect((await failureOf(start)).code).toBe('capability_unsupported');
    }
    const memory = startFrom(world, newInstance(), world.template, 'memory');
    expect((await failureOf(memory)).code).toBe('capability_unsupported');
    const archive = { ...builtInSpec('own'), root: { kind: 'archive', path: '/nowhere' } } as const;
    for (const order of [builtInSpec('other'), archive]) {
      const made = sealing(world, (staging) => world.runtime.prepareTemplate(order, staging, unhurried));
      expect((await failureOf(made)).code).toBe('capability_unsupported');
    }
  });
});

describe('an observation', () => {
  it('is unknown, never gone, while the directory of instances cannot be read', async () => {
    const instance = await world.started();
    await rename(world.instancesDir, `${world.instancesDir}.away`);
    expect(await world.runtime.observe(instance, unhurried)).toMatchObject({ is: 'unknown' });
    await rename(`${world.instancesDir}.away`, world.instancesDir);
    expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
  });

  it('does not take another process with the agent’s pid for the agent', async () => {
    const instance = await world.started();
    const path = join(world.home(instance), '../instance.json');
    const record = JSON.parse(await readFile(path, 'utf8'));
    const impostor = { ...record.agent, pid: process.pid };
    await writeFile(path, JSON.stringify({ ...record, agent: impostor }));
    expect(await world.runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: true });
    await writeFile(path, JSON.stringify({ ...record, agent: { ...record.agent, bootId: 'before' } }));
    expect(await world.runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: true });
  });

  it('is unknown while processes run whose instance has a damaged record; destroy finds them', async () => {
    const instance = await world.started();
    await writeFile(join(world.home(instance), '../instance.json'), '{');
    expect(await world.runtime.observe(instance, unhurried)).toMatchObject({ is: 'unknown' });
    await world.runtime.destroy(instance, unhurried);
    expect(await processesKnowing(world.home(instance))).toEqual([]);
  });
});
