/** Runs a program with a state in an instance, and asks it after a sleep what became of the state. */
import type { Instance } from '@torpor/engine';
import type { GvisorWorld } from '../../../../testing/gvisor-world.ts';
import { type ProgramState, programOf } from './program-states.ts';

const DIRECTORY = '/tmp/state';

/** Resolves when the program has its state. */
export async function begun(world: GvisorWorld, instance: Instance, state: ProgramState): Promise<void> {
  const script = '/tmp/state.py';
  await (await world.agent(instance)).files.write(script, programOf(state, DIRECTORY));
  await world.begin(instance, `exec python3 ${script}`);
}

/** `ok`, or how the program failed. */
export async function resultOf(world: GvisorWorld, instance: Instance): Promise<string> {
  const wait = `touch ${DIRECTORY}.go; for i in $(seq 300); do [ -e ${DIRECTORY}.result ] && break; sleep 0.1; done`;
  const { output } = await world.run(instance, `${wait}; cat ${DIRECTORY}.result`);
  return output;
}
