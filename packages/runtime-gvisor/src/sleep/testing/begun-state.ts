/** Runs a program in some state in an instance, and asks it after a resume whether the state survived. */
import type { Instance } from '@torpor/engine';
import type { GvisorWorld } from '../../../testing/gvisor-world.ts';
import { PROGRAM_STATES, type ProgramState, programOf } from './program-states.ts';

const placeOf = (state: ProgramState) => `/tmp/state-${PROGRAM_STATES.indexOf(state)}`;

/** Resolves when the program is in its state. */
export async function begun(world: GvisorWorld, instance: Instance, state: ProgramState): Promise<void> {
  const script = `${placeOf(state)}.py`;
  await (await world.agent(instance)).files.write(script, programOf(state, placeOf(state)));
  await world.begin(instance, `exec python3 ${script}`);
}

/** `ok`, or how the program failed. */
export async function resultOf(world: GvisorWorld, instance: Instance, state: ProgramState): Promise<string> {
  const place = placeOf(state);
  const wait = `touch ${place}.go; for i in $(seq 300); do [ -e ${place}.result ] && break; sleep 0.1; done`;
  const { output } = await world.run(instance, `${wait}; cat ${place}.result`);
  return output;
}
