/**
 * Kills this process at a named place, for the campaign that proves that every such death is survived.
 * `TORPOR_FAULT=pause.seal-captured` dies at the first pass, `…:3` at the third. Nothing happens without
 * `TORPOR_FAULTS=1` beside it, so that a variable left over in some environment kills nobody.
 */
import { type FaultPoints, noFaults } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export function faultsFrom(env: NodeJS.ProcessEnv, die: () => void): FaultPoints {
  const wanted = env['TORPOR_FAULT'];
  if (env['TORPOR_FAULTS'] !== '1' || !wanted) return noFaults;
  const [, point, times = '1'] = /^([a-z]+\.[a-z-]+)(?::([1-9]\d*))?$/.exec(wanted) ?? [];
  if (point === undefined) {
    throw new TorporError('invalid_request', `TORPOR_FAULT=${wanted} names no fault point.`, {
      hint: 'One is pause.seal-captured, or pause.seal-captured:2 for the second time it is passed.',
    });
  }
  let left = Number(times);
  return {
    pass: (passed) => {
      if (passed !== point || --left > 0) return undefined;
      die();
      // Nothing may happen between the signal and the death.
      return new Promise<never>(() => {});
    },
  };
}
