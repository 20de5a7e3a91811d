/** Makes the gateway of the server, with the server's keys and metrics and the open ports that agents report. */
import type { Clock, Database, Engine, Ids, Tracing } from '@torpor/engine';
import { checkSignature } from '@torpor/envd';
import {
  engineSandboxDirectory,
  Gateway,
  type GatewayObserver,
  type GatewayParts,
  type GatewaySettings,
  type HopSigner,
  type Keys,
} from '@torpor/gateway';
import { TorporError } from '@torpor/protocol';
import { usedLinks } from '../cluster/used-links.ts';
import { hashKey, parseKey } from '../keys/api-key.ts';
import { identify } from '../keys/identity.ts';
import { findKey } from '../keys/key-table.ts';
import type { Log } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import { openPortsOf } from '../routes/ports.ts';

export interface OpenGatewayContext {
  /** A function, because the engine is created after the gateway and needs the gateway's gates. */
  readonly engine: () => Engine;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly randomBytes: (n: number) => Uint8Array;
  readonly secret: Uint8Array;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly tracing: Tracing;
  readonly settings: GatewaySettings;
  /** Undefined for a server that is alone. */
  readonly signer?: HopSigner | undefined;
}

/** How long to wait for the list of open ports that an error shows. */
const OPEN_PORTS_MS = 1_000;

export function openGateway(ctx: OpenGatewayContext): Gateway {
  const { engine, clock, ids, randomBytes, secret, metrics, settings } = ctx;
  const sandboxes = engineSandboxDirectory(engine, ctx.tracing, ({ org, id }) =>
    openPortsOf(engine(), org, id, AbortSignal.timeout(OPEN_PORTS_MS)),
  );
  const gateway = new Gateway({
    sandboxes,
    keys: keysOf(ctx),
    clock,
    ids,
    randomBytes,
    secret,
    checkSignature,
    settings,
    observe: observer(ctx),
    ...(ctx.signer === undefined ? {} : { usedLinks: usedLinks(ctx) }),
    hop: ctx.signer === undefined ? undefined : hopParts(ctx, ctx.signer),
  });
  metrics.watchWaitingRequests(() => gateway.queuedRequests);
  return gateway;
}

function keysOf({ db, clock }: OpenGatewayContext): Keys {
  return {
    // A revoked key is still hidden from the app.
    isKey: async (text) => (await findKey(db, hashKey(parseKey(text) ?? ''))) !== undefined,
    orgOf: async (headers) => {
      const plain = headers['x-api-key'];
      // When X-API-Key has our key, Authorization is for the app.
      const only = plain === undefined ? headers : { 'x-api-key': plain };
      const { org, readOnly } = await identify(db, clock, only);
      // A request to an app may change anything, and wakes the sandbox.
      if (readOnly) throw new TorporError('forbidden', 'A read-only key cannot send requests to an app.');
      return org;
    },
  };
}

function hopParts({ engine, metrics, log }: OpenGatewayContext, signer: HopSigner): GatewayParts['hop'] {
  return {
    signer,
    nodes: {
      get self() {
        return engine().nodeDirectory().self;
      },
      locate: (id) => engine().nodeDirectory().locate(id),
      nodeByName: (name) => engine().nodeDirectory().nodeByName(name),
    },
    observe: {
      passedOn: (node) => metrics.hops.inc({ node }),
      refusedHop: (why, from) => {
        metrics.hopRefusals.inc({ why });
        log.warn(
          { event: 'hop.refused', why, from },
          `a request that claims to come from a node was refused: ${why}`,
        );
      },
      failed: (node, error, requestId) => {
        metrics.hopFailures.inc({ code: error.code });
        log.info({ event: 'hop.failed', requestId, node, code: error.code, error }, error.message);
      },
    },
  };
}

function observer({ log, metrics }: OpenGatewayContext): GatewayObserver {
  return {
    previewRequested: ({ by }) => metrics.previews.inc({ by }),
    refused: (route, error, requestId) => {
      metrics.previewRefusals.inc({ code: error.code });
      const facts = {
        event: 'preview.refused',
        requestId,
        code: error.code,
        ...(route === undefined ? {} : { sandboxId: route.sandboxId, port: route.port, by: route.by }),
        ...(error.cause === undefined ? {} : { error }),
      };
      log[error.code === 'internal' ? 'error' : 'info'](facts, error.message);
    },
    woken: (sandboxId, ms, error) => {
      const outcome = error?.code ?? 'ok';
      const durationMs = Math.round(ms);
      metrics.wakeSeconds.observe({ outcome }, ms / 1_000);
      log.info({ event: 'wake', sandboxId, durationMs, outcome }, `woken for a preview request: ${outcome}`);
    },
  };
}
