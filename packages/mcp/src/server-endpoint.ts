/** The endpoint `/mcp` of a server: the server checks the key of each request and says what its model may do. */
import { Torpor } from '@torpor/sdk';
import { createHttpHandler } from './http-handler.ts';
import type { Limits } from './limits.ts';

export interface EndpointOptions {
  readonly version: string;
  readonly report: (error: Error) => void;
}

interface EndpointCaller {
  readonly apiKey: string;
  /** The user on whose behalf a service key acts. */
  readonly user: string | undefined;
  readonly limits: Limits;
  /** Sends the calls of the tools to the API of the same server. */
  readonly fetch: typeof fetch;
}

export interface Endpoint {
  answer(request: Request, caller: EndpointCaller, body: unknown): Promise<Response>;
}

export function openEndpoint({ version, report }: EndpointOptions): Endpoint {
  const handler = createHttpHandler(version, report);
  return {
    answer: (request, { apiKey, user, limits, fetch }, body) => {
      const { origin: url } = new URL(request.url);
      return handler.answer(request, { torpor: new Torpor({ url, apiKey, user, fetch }), limits }, body);
    },
  };
}
