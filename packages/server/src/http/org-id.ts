/**
 * The optional query parameter `orgId` names the organisation of a request. A key belongs to one organisation, so
 * another name is a mistake and is refused before the route runs. Only routes with `config: { orgId: 'operator' }`
 * let an operator key name another organisation.
 *
 * This is the only place that reads `orgId`. It is removed from the query here, so that no route's schema needs it.
 * `request.org` is the organisation of the request.
 */
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { Identity } from '../keys/identity.ts';

/** Accepts more than names of organisations, so that a foreign id gets `forbidden` and not `invalid_request`. */
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

/** Returns the organisation when it is the key's own or the key is an operator key. */
export function requireOrg(identity: Identity, org: string): string {
  if (org !== identity.org && !identity.operator) throw anotherOrg(identity, org);
  return org;
}

export function requireOperator({ operator }: Identity): void {
  if (!operator) throw new TorporError('forbidden', 'This needs an operator key.');
}

/** Refuses the key of a user where a route shows the whole server. */
export function requireService({ service }: Identity): void {
  if (!service) throw new TorporError('forbidden', 'The key of a user cannot see the whole server.');
}

/** The message does not say whether the other organisation exists. */
function anotherOrg(identity: Identity, org: string): TorporError {
  return new TorporError('forbidden', `The key belongs to "${identity.org}" and not to "${org}".`, {
    hint: 'Use a key of that organisation, or leave the organisation out.',
    details: { orgId: org, keyOrgId: identity.org },
  });
}
