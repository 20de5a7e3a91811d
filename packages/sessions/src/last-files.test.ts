import { makeWorld, type World } from '@torpor/engine/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { lastFiles } from './last-files.ts';

const caller = { org: 'org' };
let world: World;
beforeEach(async () => {
  world = await makeWorld('sqlite');
});
afterEach(() => world.dispose());

it('are those of the newest checkpoint with intact files, whatever happened to its memory (R73, R93)', async () => {
  const { engine, store } = world;
  const { id } = (await engine.create(caller, {})).sandbox;
  const { checkpoint: first } = await engine.pause(caller, id);
  await engine.resume(caller, id);
  const { checkpoint: second } = await engine.pause(caller, id);
  store.damage(second.id, 'missing', 'memory.json');
  await engine.inspectCheckpoints();
  expect(await lastFiles({ engine }, 'org', id, undefined)).toBe(second.id);
  store.damage(second.id, 'missing', 'image.json');
  await engine.inspectCheckpoints();
  expect(await lastFiles({ engine }, 'org', id, undefined)).toBe(first.id);
});
