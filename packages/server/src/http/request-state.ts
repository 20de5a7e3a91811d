/** Fields that the server adds to Fastify's requests. Hooks set them; routes and the log read them. */
import type { Span } from '@torpor/engine';
import type { Identity } from '../keys/identity.ts';
import type { RequestDeadline } from './request-deadline.ts';

/** Fields of the log line of a request. */
interface LogFields {
  sandboxId?: string;
  operationId?: string;
  errorCode?: string;
}

/** Which time limit of `ServerSettings` applies to a route. */
export type DeadlineKind = 'read' | 'checkpoint' | 'lifecycle';

declare module 'fastify' {
  interface FastifyRequest {
    deadline: RequestDeadline;
    logFields: LogFields;
    startedAt: number;
    /** Set for routes that need a key. */
    identity: Identity;
    /** Of requests with a valid key only, so that strangers cannot fill the collector. */
    span: Span | undefined;
    /** The organisation of the request: the key's own, unless an operator key named another. */
    org: string;
  }

  interface FastifyContextConfig {
    deadline?: DeadlineKind;
    /**
     * `open` needs no key, `signed` needs a signature, `loopback` needs no key from this machine, `page` needs no key
     * for browsers that ask for HTML, `node` is for other nodes.
     */
    access?: 'key' | 'signed' | 'open' | 'loopback' | 'page' | 'node';
    /**
     * Whether the request changes or wakes something, and is refused to a read-only key or session. By default every
     * method but GET and HEAD does.
     */
    changes?: boolean;
    /** `operator`: an operator key may name another organisation by `orgId`. */
    orgId?: 'operator';
  }
}
