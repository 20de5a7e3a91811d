/** What the server knows of a request beside what Fastify does; filled by hooks, read by routes and the log. */
import type { Identity } from '../keys/identity.ts';
import type { RequestDeadline } from './request-deadline.ts';

/** What the log line of a request names. */
interface LogFields {
  sandboxId?: string;
  operationId?: string;
  errorCode?: string;
}

/** How long a route may take; see ServerSettings. */
export type DeadlineKind = 'read' | 'checkpoint' | 'lifecycle';

declare module 'fastify' {
  interface FastifyRequest {
    deadline: RequestDeadline;
    logFields: LogFields;
    startedAt: number;
    /** Of routes that need a key. */
    identity: Identity;
    /** The organisation that the request is about: the key's own, unless an operator named another. */
    org: string;
  }

  interface FastifyContextConfig {
    deadline?: DeadlineKind;
    /** `open` needs no key, `signed` has a signature instead, `loopback` needs none from this machine. */
    access?: 'key' | 'signed' | 'open' | 'loopback';
    /** `operator`: an operator key may name another organisation by `orgId`. */
    orgId?: 'operator';
  }
}
