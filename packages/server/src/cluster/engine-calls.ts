/**
 * Calls of the engine of another node. A node makes them for work that goes on where it was accepted, while its sandbox lives
 * elsewhere: the turns of sessions, builds, and template builds. Both sides are here, so that they agree on the form.
 */
import { json } from 'node:stream/consumers';
import type { Caller, Engine, NodeAddress } from '@torpor/engine';
import type { HopSigner } from '@torpor/gateway';
import { askNode } from './node-client.ts';

/** Their first parameter is the caller. */
const OF_CALLERS = ['create', 'resume', 'pause', 'fork', 'snapshot', 'kill'] as const;
/** Their first parameter is the organisation. */
const OF_ORGS = ['get', 'compareOne', 'dial'] as const;

export const REMOTE_CALLS = [...OF_CALLERS, ...OF_ORGS] as const;
export type RemoteCall = (typeof REMOTE_CALLS)[number];

export type RemoteEngine = Pick<Engine, RemoteCall>;

/** Sends a call to the engine of another node. The types of `Engine` are those of the call. */
export async function callEngine<C extends RemoteCall>(
  signer: HopSigner,
  to: NodeAddress,
  call: C,
  args: Parameters<RemoteEngine[C]>,
): Promise<Awaited<ReturnType<RemoteEngine[C]>>> {
  const [first, ...rest] = args as readonly [string | Caller, ...unknown[]];
  const { signal, span: _, ...caller } = typeof first === 'string' ? {} : first;
  const body = { args: [typeof first === 'string' ? first : caller, ...rest] };
  const target = `/v1/cluster/engine/${call}`;
  const response = await askNode(signer, to, { method: 'POST', target, body, signal });
  const { result } = (await json(response)) as { result: Awaited<ReturnType<RemoteEngine[C]>> };
  return result;
}

/** Carries a call of another node out. `signal` fires when that node no longer waits. */
export async function answerCall(
  engine: RemoteEngine,
  call: RemoteCall,
  [first, ...rest]: readonly unknown[],
  signal: AbortSignal,
): Promise<unknown> {
  const isOfCaller = (OF_CALLERS as readonly string[]).includes(call);
  const begin = isOfCaller ? { ...(first as Caller), signal } : first;
  const run = engine[call] as (...args: unknown[]) => Promise<unknown>;
  return (await run.call(engine, begin, ...rest)) ?? null;
}
