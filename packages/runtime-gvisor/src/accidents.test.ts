/** Failures at any moment lose no files and no running sandbox. */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type Instance, systemClock } from '@torpor/engine';
import {
  failureOf,
  listedInstances,
  nextOf,
  paused,
  sealing,
  startFrom,
  unhurried,
} from '@torpor/engine/testing';
import { openOverlayLayers } from '@torpor/layers';
import { runSystemProgram } from '@torpor/network';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { chosenRunsc } from '../testing/chosen-runsc.ts';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../testing/gvisor-world.ts';
import { instanceName, serverTag } from './instance/instance-names.ts';

const why = await whyNoGvisor();
const PORT = 8_000;

describe.skipIf(why !== null)('failures of runsc, of the server and of records', { timeout: 120_000 }, () => {
  /** Each line names a command that runsc fails at, once. */
  const faults = join(tmpdir(), `runsc-faults-${randomBytes(6).toString('hex')}`);
  const program = `${faults}.sh`;
  const fail = (...commands: string[]) =>
    writeFile(faults, commands.map((command) => `${command}\n`).join(''));
  let world: GvisorWorld;

  beforeAll(async () => {
    const found = await chosenRunsc();
    const real = found?.program ?? '';
    await fail();
    await writeFile(program, failingRunsc(real, faults));
    await chmod(program, 0o755);
    // Without pools, so that every restore is one of this test.
    const noPools = { warmPoolSize: 0, hostResourcePoolSize: 0 };
    world = await makeGvisorWorld({
      runsc: { program, version: found?.version.name ?? '' },
      ...noPools,
    });
  }, 120_000);
  afterEach(async () => {
    await fail();
    await world?.dispose();
  }, 60_000);
  afterAll(async () => {
    await world?.close();
    for (const path of [faults, program]) await rm(path, { force: true });
  }, 60_000);

  const record = ({ sandboxId, generation }: Instance) =>
    join(world.dataDir, 'gvisor', 'instances', sandboxId, String(generation), 'instance.json');
  const output = async (instance: Instance, command: string) =>
    (await world.run(instance, command)).output.trim();

  it('a failed freeze leaves the sandbox running with its network (R86)', async () => {
    const instance = await world.started();
    await world.program.listen?.(instance, PORT);
    await world.runtime.presync(instance, unhurried);
    const { id } = world.recordOf(instance).container;
    const socket = join('/run/torpor', serverTag(world.dataDir), 'runsc', `runsc-${id}.sock`);
    await rename(socket, `${socket}.away`);
    await failureOf(world.runtime.freeze(instance, unhurried));
    await rename(`${socket}.away`, socket);
    expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    await world.runtime.thaw(instance, null, unhurried);
    expect(await output(instance, 'echo here')).toBe('here');
  });

  it('a failed restore is tried again before all processes are given up (R92)', async () => {
    const instance = await world.started();
    expect(await world.program.counter?.(instance)).toBe(0);
    await world.program.write(instance, '/home/user/a', 'a');
    const checkpoint = await paused(world, instance, 'memory');
    await world.runtime.destroy(instance, unhurried);
    const next = nextOf(instance);
    await fail('restore');
    await startFrom(world, next, checkpoint, 'memory');
    expect(await world.program.counter?.(next)).toBe(1);
  });

  it('when every restore fails, the memory is reported unusable and the files can be started', async () => {
    const instance = await world.started();
    await world.program.write(instance, '/home/user/a', 'a');
    const checkpoint = await paused(world, instance, 'memory');
    await world.runtime.destroy(instance, unhurried);
    const next = nextOf(instance);
    await fail('restore', 'restore');
    const failure = await failureOf(startFrom(world, next, checkpoint, 'memory'));
    expect(failure).toMatchObject({ code: 'checkpoint_incompatible', checkpointId: checkpoint.id });
    await world.runtime.destroy(next, unhurried);
    const third = nextOf(next);
    await startFrom(world, third, checkpoint, 'files');
    expect(await world.program.read(third, '/home/user/a')).toBe('a');
  });

  it('when the first of two captures fails, discarding its checkpoint leaves the second checkpoint usable', async () => {
    const instance = await world.started();
    await world.program.write(instance, '/home/user/a', 'kept');
    await world.runtime.freeze(instance, unhurried);
    const first = await sealing(world, (staging) =>
      world.runtime.capture(instance, 'memory', staging, unhurried),
    );
    const second = await sealing(world, (staging) =>
      world.runtime.capture(instance, 'memory', staging, unhurried),
    );
    await world.runtime.destroy(instance, unhurried);
    await world.runtime.discard(first, unhurried);
    await world.store.remove(first.id);
    const next = nextOf(instance);
    await startFrom(world, next, second, 'memory');
    expect(await world.program.read(next, '/home/user/a')).toBe('kept');
  });

  it('an instance without its record is listed and destroyed completely (R112)', async () => {
    const [whole, halved] = [await world.started(), await world.started()];
    const { sandboxId, generation } = halved;
    // The record is gone; network namespace, container, mount and control group stay.
    await rm(record(halved));
    const nameless: Instance = { sandboxId: `sbx_${'z'.repeat(20)}`, generation: 7 };
    const name = instanceName(serverTag(world.dataDir), nameless);
    await runSystemProgram('ip', ['netns', 'add', name]);
    await world.reopen();
    const found = await listedInstances(world.runtime);
    expect(found).toHaveLength(3);
    expect(found).toEqual(expect.arrayContaining([whole, { sandboxId, generation }, nameless]));
    for (const instance of [halved, nameless]) await world.runtime.destroy(instance, unhurried);
    expect(await listedInstances(world.runtime)).toEqual([whole]);
    expect(await output(whole, 'echo here')).toBe('here');
    expect(await runSystemProgram('ip', ['netns', 'list'])).not.toContain(name);
  });

  it('when a server ends before a start has its record, the next server removes what the start had taken (R112)', async () => {
    const whole = await world.started();
    const unwritten: Instance = { sandboxId: `sbx_${'x'.repeat(20)}`, generation: 2 };
    await mkdir(dirname(record(unwritten)), { recursive: true });
    const unassigned = join(world.dataDir, 'gvisor', 'berths', 'abcdef012345');
    await mkdir(join(unassigned, 'root'), { recursive: true });
    const name = `${serverTag(world.dataDir)}-berth-abcdef012345`;
    await runSystemProgram('ip', ['netns', 'add', name]);
    await world.reopen();
    expect(await runSystemProgram('ip', ['netns', 'list'])).not.toContain(name);
    expect(await readdir(dirname(unassigned))).not.toContain('abcdef012345');
    expect(await output(whole, 'echo here')).toBe('here');
    await world.runtime.destroy(unwritten, unhurried);
  });

  it('what is left of a destroyed instance is removed by the next destroy (R112)', async () => {
    const gone: Instance = { sandboxId: `sbx_${'y'.repeat(20)}`, generation: 1 };
    await world.runtime.destroy(gone, unhurried);
    await runSystemProgram('ip', ['netns', 'add', instanceName(serverTag(world.dataDir), gone)]);
    expect(await listedInstances(world.runtime)).toEqual([gone]);
    await world.runtime.destroy(gone, unhurried);
    expect(await listedInstances(world.runtime)).toEqual([]);
  });

  it('when a server ends between a merge and its record, the next server removes the merged layer (R112)', async () => {
    const instance = await world.started();
    const checkpoint = await paused(world, instance, 'files');
    const root = join(world.dataDir, 'checkpoints', 'layers');
    const layers = await openOverlayLayers({ root, clock: systemClock, randomBytes });
    const merged = await layers.create();
    await layers.seal(merged, unhurried);
    await world.reopen();
    await expect(layers.inspect(merged)).rejects.toMatchObject({ code: 'checkpoint_missing' });
    // Layers that a checkpoint or an instance uses stay.
    await world.runtime.destroy(instance, unhurried);
    await startFrom(world, nextOf(instance), checkpoint, 'files');
  });

  it('a damaged record of a sandbox does not lose the files of the sandbox (R94)', async () => {
    const instance = await world.started();
    await world.program.write(instance, '/home/user/a', 'kept');
    const written = await readFile(record(instance), 'utf8');
    await world.kill(instance);
    await writeFile(record(instance), written.slice(0, 20));
    await world.reopen();
    // When the record is repaired, everything is found again.
    await writeFile(record(instance), written);
    const checkpoint = await sealing(world, (staging) =>
      world.runtime.recoverFiles(instance, staging, unhurried),
    );
    await world.runtime.destroy(instance, unhurried);
    const next = nextOf(instance);
    await startFrom(world, next, checkpoint, 'files');
    expect(await world.program.read(next, '/home/user/a')).toBe('kept');
  });
});

/** A wrapper of the real runsc that fails at the commands in the file. */
function failingRunsc(real: string, faults: string): string {
  return `#!/bin/sh
for word in "$@"; do
  case $word in
    --*) ;;
    *)
      if grep -qx "$word" ${faults}; then
        sed -i "0,/^$word$/{//d}" ${faults}
        echo "told to fail" >&2
        exit 1
      fi
      break ;;
  esac
done
exec ${real} "$@"
`;
}
