/** Refuses the key of a user where the whole server is looked at. */
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';

export function requireService({ identity }: FastifyRequest): void {
  if (identity.service) return;
  throw new TorporError('forbidden', 'The key of a user cannot look at the whole server.');
}
