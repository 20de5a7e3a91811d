/** Wraps a runtime with faults that a test chooses: slow, failing, lying or hanging calls. */
import { TorporError } from '@torpor/protocol';
import type { Clock } from '../src/ports/clock.ts';
import type { Captured, Runtime, Started } from '../src/ports/runtime.ts';

export const FAULTS = ['slow', 'fail', 'fail-after', 'lie', 'hang', 'hang-after'] as const;
export type Fault = (typeof FAULTS)[number];

/** Calls that can fail, each with its false result: success without any effect. */
const FALSE_RESULTS = {
  start: (): Started => ({ mode: 'memory', lost: [] }),
  observe: () => ({ is: 'unknown' as const, why: 'the runtime is not well' }),
  presync: () => undefined,
  freeze: () => undefined,
  capture: (): Captured => ({
    parts: { files: true, memory: true },
    needs: {},
    dependsOn: [],
    external: null,
  }),
  thaw: () => undefined,
  recoverFiles: (): Captured => ({
    parts: { files: true, memory: false },
    needs: {},
    dependsOn: [],
    external: null,
  }),
  destroy: () => undefined,
  checkUsable: () => ({ usable: true as const }),
  verify: () => undefined,
  discard: () => undefined,
} as const;

export type FaultyCall = keyof typeof FALSE_RESULTS;
export const FAULTY_CALLS = Object.keys(FALSE_RESULTS) as FaultyCall[];

/** Called before each call; returns the fault of that call. */
export type FaultPlan = (call: FaultyCall) => Fault | undefined;

export function withFaults(runtime: Runtime, clock: Clock, plan: FaultPlan): Runtime {
  const misbehave = async (call: FaultyCall, fault: Fault, work: () => Promise<unknown>) => {
    const broken = () => new TorporError('unreachable', `${call} was made to fail.`);
    switch (fault) {
      case 'slow':
        await clock.sleep(2_000);
        return work();
      case 'fail':
        throw broken();
      case 'fail-after':
        await work();
        throw broken();
      case 'lie':
        return FALSE_RESULTS[call]();
      case 'hang':
        return hang();
      case 'hang-after':
        await work();
        return hang();
    }
  };
  return new Proxy(runtime, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const method = value.bind(target) as (...args: unknown[]) => unknown;
      if (!isFaulty(name)) return method;
      return async (...args: unknown[]) => {
        const fault = plan(name);
        const work = async () => method(...args);
        return fault === undefined ? work() : misbehave(name, fault, work);
      };
    },
  });
}

function isFaulty(name: string | symbol): name is FaultyCall {
  return typeof name === 'string' && Object.hasOwn(FALSE_RESULTS, name);
}

/** Never settles, not even when the signal fires: the worst that a runtime can do. */
function hang(): Promise<never> {
  return new Promise(() => {});
}
