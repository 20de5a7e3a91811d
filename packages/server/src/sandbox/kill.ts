/** The end of a sandbox, and of what the server remembers about its processes. */
import type { SandboxId, SandboxView } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { lifecycle } from '../http/lifecycle.ts';
import type { RouteParts } from '../parts.ts';
import { forgetTracked } from './tracked-table.ts';

export async function killAndForget(
  parts: RouteParts,
  request: FastifyRequest,
  id: SandboxId,
): Promise<SandboxView> {
  const { engine, db } = parts;
  const killed = await lifecycle(parts, request, id, (caller) => engine.kill(caller, id));
  // It is killed either way; a row that stays says nothing wrong.
  await request.bound.run(() => db.transaction((tx) => forgetTracked(tx, id))).catch(() => {});
  return killed;
}
