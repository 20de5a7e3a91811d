/** The gateway as part of the server: with its keys, its figures, and what only agents know about ports. */
import type { Clock, Database, Engine, Ids } from '@torpor/engine';
import { checkSignature } from '@torpor/envd';
import {
  engineSandboxes,
  Gateway,
  type GatewayObserver,
  type GatewaySettings,
  type Keys,
} from '@torpor/gateway';
import { hashKey, parseKey } from '../keys/api-key.ts';
import { identify } from '../keys/identity.ts';
import { findKey } from '../keys/key-table.ts';
import type { Log } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import { openPortsOf } from '../port-list.ts';

export interface OpenGatewayParts {
  /** Asked late: the engine is made with the gateway's doors in its hand. */
  readonly engine: () => Engine;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly randomBytes: (n: number) => Uint8Array;
  readonly secret: Uint8Array;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly settings: GatewaySettings;
}

/** For the list of open ports in an error, which nobody waits long for. */
const OPEN_PORTS_MS = 1_000;

export function openGateway(parts: OpenGatewayParts): Gateway {
  const { engine, clock, ids, randomBytes, secret, metrics, settings } = parts;
  const sandboxes = engineSandboxes(engine, ({ org, id }) =>
    openPortsOf(engine(), org, id, AbortSignal.timeout(OPEN_PORTS_MS)),
  );
  const gateway = new Gateway({
    sandboxes,
    keys: keysOf(parts),
    clock,
    ids,
    randomBytes,
    secret,
    checkSignature,
    settings,
    observe: observer(parts),
  });
  metrics.watchHeld(() => gateway.held);
  return gateway;
}

function keysOf({ db, clock }: OpenGatewayParts): Keys {
  return {
    // One that was revoked is still none of the app's business.
    isKey: async (text) => (await findKey(db, hashKey(parseKey(text) ?? ''))) !== undefined,
    orgOf: async (headers) => {
      const plain = headers['x-api-key'];
      // With a key of ours in its own header, Authorization is for the app.
      const only = plain === undefined ? headers : { 'x-api-key': plain };
      return (await identify(db, clock, only)).org;
    },
  };
}

function observer({ log, metrics }: OpenGatewayParts): GatewayObserver {
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
      log.info({ event: 'wake', sandboxId, durationMs, outcome }, `woken for a visitor: ${outcome}`);
    },
  };
}
