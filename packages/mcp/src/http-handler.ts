/** Answers requests of MCP over HTTP. It keeps nothing between two requests, so it may be restarted at any time. */
import { createMcpHandler } from '@modelcontextprotocol/server';
import type { Torpor } from '@torpor/sdk';
import type { Limits } from './limits.ts';
import { createMcpServer } from './mcp-server.ts';

/** Whose rights a request has, and what it may do with them. */
interface HttpCaller {
  readonly torpor: Torpor;
  readonly limits: Limits;
}

export interface HttpHandler {
  /** `body`: the parsed body, if the caller has read it. */
  answer(request: Request, caller: HttpCaller, body?: unknown): Promise<Response>;
  close(): Promise<void>;
}

/** The protocol allows streams on which nothing but changes of the tools is told. The tools never change. */
const MAX_SUBSCRIPTIONS = 64;

export function createHttpHandler(version: string, report: (error: Error) => void): HttpHandler {
  const handler = createMcpHandler(
    ({ authInfo }) => {
      const caller = authInfo?.extra?.['caller'] as HttpCaller | undefined;
      if (caller === undefined) throw new Error('The request has no caller.');
      return createMcpServer(caller.torpor, caller.limits, version);
    },
    { onerror: report, maxSubscriptions: MAX_SUBSCRIPTIONS },
  );
  return {
    answer: (request, caller, body) => {
      // The handler passes this on to the function above, and reads nothing of it.
      const authInfo = { token: '', clientId: '', scopes: [], extra: { caller } };
      return handler.fetch(request, { authInfo, ...(body === undefined ? {} : { parsedBody: body }) });
    },
    close: () => handler.close(),
  };
}
