/** What the server knows of a request beside what Fastify does; filled by hooks, read by routes and the log. */
import type { Identity } from '../keys/identity.ts';
import type { RequestBound } from './request-bound.ts';

/** What the log line of a request names. */
interface RequestFacts {
  sandboxId?: string;
  operationId?: string;
  errorCode?: string;
}

/** How long a route may take; see ServerSettings. */
export type BoundKind = 'read' | 'checkpoint' | 'lifecycle';

declare module 'fastify' {
  interface FastifyRequest {
    bound: RequestBound;
    facts: RequestFacts;
    startedAt: number;
    /** Of routes that need a key. */
    identity: Identity;
    /** The organisation that the request is about: the key's own, unless an operator named another. */
    org: string;
  }

  interface FastifyContextConfig {
    bound?: BoundKind;
    /** `open` needs no key, `signed` has a signature instead, `loopback` needs none from this machine. */
    access?: 'key' | 'signed' | 'open' | 'loopback';
    /** `operator`: an operator key may name another organisation by `orgId`. */
    orgId?: 'operator';
  }
}
