/** An app with only the routes that a test is about, on the parts of a test server. */
import { fastify } from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { addFailureHandlers } from '../src/http/failures.ts';
import { acceptJson } from '../src/http/json-body.ts';
import { Replays } from '../src/http/replays.ts';
import { addRequestHooks } from '../src/http/request-hooks.ts';
import type { RoutesApp } from '../src/http/routes-app.ts';
import type { RouteParts } from '../src/parts.ts';
import type { TestServer } from './test-server.ts';

export interface RoutesAlone {
  readonly app: RoutesApp;
  readonly url: string;
  /** Fires `stopping`, and then closes. */
  stop(): Promise<void>;
}

export async function routesAlone(
  { parts: given }: TestServer,
  ...routes: readonly ((app: RoutesApp, parts: RouteParts) => void)[]
): Promise<RoutesAlone> {
  const stopping = new AbortController();
  const leaving = new AbortController();
  const { db, clock, ids, settings } = given;
  const parts: RouteParts = {
    ...given,
    replays: new Replays({ db, clock, keptMs: settings.replayMs }),
    stopping: stopping.signal,
    leaving: leaving.signal,
  };
  const app = fastify({ genReqId: () => ids.next('req'), logger: false, forceCloseConnections: true });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  addRequestHooks(app, parts);
  addFailureHandlers(app, parts);
  acceptJson(app, settings.maxJsonBytes);
  await app.register(async (inner) => {
    for (const add of routes) add(inner as unknown as RoutesApp, parts);
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  return {
    app: app as unknown as RoutesApp,
    url,
    stop: async () => {
      stopping.abort();
      setTimeout(() => leaving.abort(), settings.stopMs).unref();
      await app.close();
    },
  };
}
