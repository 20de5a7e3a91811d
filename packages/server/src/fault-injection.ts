/**
 * Kills this process at a named fault point, for the campaign that tests recovery from a crash at every such point.
 * `TORPOR_FAULT=pause.seal-captured` kills it the first time the point is passed, `…:3` the third time. It needs
 * `TORPOR_FAULTS=1` as well, so that a leftover variable kills no server.
 */
import { type FaultPoints, noFaults } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export function faultsFrom(env: NodeJS.ProcessEnv, die: () => void): FaultPoints {
  const wanted = env['TORPOR_FAULT'];
  if (env['TORPOR_FAULTS'] !== '1' || !wanted) return noFaults;
  const [, point, times = '1'] = /^([a-z]+\.[a-z-]+)(?::([1-9]\d*))?$/.exec(wanted) ?? [];
  if (point === undefined) {
    throw new TorporError('invalid_request', `TORPOR_FAULT=${wanted} names no fault point.`, {
      hint: 'Example: pause.seal-captured, or pause.seal-captured:2 for the second time it is passed.',
    });
  }
  let left = Number(times);
  return {
    pass: (passed) => {
      if (passed !== point || --left > 0) return undefined;
      die();
      // Never resolves: nothing may happen between the signal and the end of the process.
      return new Promise<never>(() => {});
    },
  };
}
