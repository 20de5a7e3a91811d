/** The runsc for tests: the one that a server would choose, or the one that `TORPOR_RUNSC` names. */
import { findRunsc, type RunscSearch } from '../src/runsc/find-runsc.ts';

export async function chosenRunsc(): Promise<RunscSearch['found']> {
  const runsc = process.env['TORPOR_RUNSC'] || undefined;
  return (await findRunsc({ dataDir: '/nonexistent', runsc }, new AbortController().signal)).found;
}
