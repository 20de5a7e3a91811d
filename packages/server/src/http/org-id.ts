/**
 * The optional query parameter `orgId`: which organisation a request means. A key belongs to one organisation, so
 * naming another is a mistake and is refused before the route does anything. Only routes that say
 * `config: { orgId: 'operator' }` let an operator key name another one.
 *
 * This is the one place where `orgId` is read. It is taken out of the query here, so that no route's schema has to
 * know it; `request.org` is the organisation that the request is about.
 */
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { Identity } from '../keys/identity.ts';

/** Wider than what new organisations may be called: a foreign id is to be told that it is foreign. */
const ORG_ID = /^[\x21-\x7e]{1,200}$/;

export function takeOrgId(request: FastifyRequest): string {
  const { identity } = request;
  const query = request.query as Record<string, unknown>;
  const named = query['orgId'];
  if (named === undefined) return identity.org;
  delete query['orgId'];
  if (typeof named !== 'string' || !ORG_ID.test(named)) {
    throw new TorporError('invalid_request', 'orgId does not name one organisation.');
  }
  const mayBeOther = request.routeOptions.config.orgId === 'operator';
  if (named !== identity.org && !mayBeOther) throw anotherOrg(identity, named);
  return requireOrg(identity, named);
}

/** The organisation, when it is the key's own or the key is an operator's. */
export function requireOrg(identity: Identity, org: string): string {
  if (org !== identity.org && !identity.operator) throw anotherOrg(identity, org);
  return org;
}

export function requireOperator({ operator }: Identity): void {
  if (!operator) throw new TorporError('forbidden', 'Only an operator key may do that.');
}

/** Refuses the key of a user where a route shows the whole server. */
export function requireService({ service }: Identity): void {
  if (!service) throw new TorporError('forbidden', 'The key of a user cannot see the whole server.');
}

/** Says nothing about whether the other one exists. */
function anotherOrg(identity: Identity, org: string): TorporError {
  return new TorporError('forbidden', `The key belongs to "${identity.org}" and not to "${org}".`, {
    hint: 'Use a key of that organisation, or leave the organisation out.',
    details: { orgId: org, keyOrgId: identity.org },
  });
}
