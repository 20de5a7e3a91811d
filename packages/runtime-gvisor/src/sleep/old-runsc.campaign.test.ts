/** What becomes of programs that an old runsc cannot put to sleep, or cannot wake: the engine on a real sandbox. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Engine, Instance } from '@torpor/engine';
import { type FreshDatabase, freshDatabase } from '@torpor/engine/testing';
import type { SandboxView } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { engineOn } from '@torpor/runtime-shared/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { MACHINE_WIDE } from '../binaries/build.mjs';
import { dayOf, isRecent } from '../binaries/releases.mjs';
import { begun } from './testing/begun-state.ts';
import { PROGRAM_STATES } from './testing/program-states.ts';

const caller = { org: 'org' };
const versions = existsSync(MACHINE_WIDE) ? readdirSync(MACHINE_WIDE) : [];
const version = versions.find((name) => dayOf(name) !== null && !isRecent(dayOf(name)));
const isMissing = (await whyNoGvisor()) !== null || version === undefined;

describe.skipIf(isMissing)('on an old runsc', { timeout: 180_000 }, () => {
  let world: GvisorWorld;
  let fresh: FreshDatabase;
  let engine: Engine;

  beforeAll(async () => {
    const name = version ?? '';
    world = await makeGvisorWorld({
      runsc: { program: join(MACHINE_WIDE, name, 'runsc'), version: name },
      // An image that cannot be restored hangs for this long. A sandbox that stays in memory would not need it.
      settings: { ...DEFAULT_RUNTIME_SETTINGS, runscRestoreMs: 15_000, warmKeepMs: 0 },
    });
    fresh = await freshDatabase('sqlite');
    engine = engineOn(world, fresh);
    await engine.start({ rounds: false });
  }, 180_000);
  afterAll(async () => {
    await engine.stop();
    await fresh.dispose();
    await world.dispose();
    await world.close();
  }, 60_000);

  const instanceOf = ({ id, generation }: SandboxView): Instance => ({ sandboxId: id, generation });

  async function withState(name: string, timeoutSeconds = 600): Promise<SandboxView> {
    const state = PROGRAM_STATES.find((one) => one.name === name);
    if (state === undefined) throw new Error(`There is no program state ${name}.`);
    const sandbox = (await engine.create(caller, { timeoutSeconds })).sandbox;
    await world.program.write(instanceOf(sandbox), '/home/user/kept', name);
    await begun(world, instanceOf(sandbox), state);
    return sandbox;
  }

  it('a sandbox with an open, deleted file is paused with its files when its time is over (R94)', async () => {
    const sandbox = await withState('an open, deleted file', 1);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await engine.sweep();

    expect(await engine.get('org', sandbox.id)).toMatchObject({
      state: 'paused',
      lost: ['processes', 'connections'],
    });
    const resumed = await engine.resume(caller, sandbox.id);
    expect(resumed).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
    const kept = await world.program.read(instanceOf(resumed.sandbox), '/home/user/kept');
    expect(kept).toBe('an open, deleted file');
    await engine.kill(caller, sandbox.id);
  });

  it('an image that hangs twice while another is restored gives way to the files (R92)', async () => {
    const hanging = await withState('a listener with a full backlog');
    const { checkpoint } = await engine.pause(caller, hanging.id);
    const other = (await engine.create(caller, {})).sandbox;
    await engine.pause(caller, other.id);

    await expect(engine.resume(caller, hanging.id)).rejects.toMatchObject({ code: 'timeout' });
    expect(await engine.resume(caller, other.id)).toMatchObject({ source: { kind: 'memory' }, lost: [] });
    const resumed = await engine.resume(caller, hanging.id);

    expect(resumed).toMatchObject({
      source: { checkpointId: checkpoint.id, kind: 'files' },
      lost: ['processes'],
    });
    const kept = await world.program.read(instanceOf(resumed.sandbox), '/home/user/kept');
    expect(kept).toBe('a listener with a full backlog');
    const { items } = await engine.checkpoints('org', hanging.id, 10);
    expect(items.find(({ id }) => id === checkpoint.id)).toMatchObject({ state: 'sealed' });
    await engine.kill(caller, hanging.id);
    await engine.kill(caller, other.id);
  });
});
