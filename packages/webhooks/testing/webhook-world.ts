/** Webhooks on a real engine and database, with a receiver in memory that a test can let fail, hang and come back. */
import { randomIds } from '@torpor/engine';
import { type DatabaseKind, makeWorld, type World } from '@torpor/engine/testing';
import type { EventView, SandboxId } from '@torpor/protocol';
import { AddressCheck } from '../src/address-check.ts';
import type { OutgoingRequest } from '../src/send.ts';
import { DEFAULT_WEBHOOK_SETTINGS, type WebhookSettings } from '../src/settings.ts';
import { Webhooks, type WebhooksParts } from '../src/webhooks.ts';

export const ORG = 'default';
export const URL_OF_RECEIVER = 'https://hooks.example.com/torpor';
const SERVER_SECRET = Buffer.alloc(32, 7);

class Receiver {
  /** Every request, also those that were refused. */
  readonly requests: OutgoingRequest[] = [];
  /** The events that were accepted, in the order of their acceptance. */
  readonly accepted: EventView[] = [];
  /** The status for an event. A promise that does not resolve is a receiver that hangs. */
  answer: (event: EventView, request: OutgoingRequest) => number | Promise<number> = () => 204;

  readonly send = async (request: OutgoingRequest): Promise<number> => {
    this.requests.push(request);
    const event = JSON.parse(request.body) as EventView;
    const status = await this.answer(event, request);
    if (status < 300) this.accepted.push(event);
    return status;
  };

  positions(): number[] {
    return this.accepted.map(({ position }) => position);
  }

  /** The accepted positions of each sandbox, in the order of their acceptance. */
  bySandbox(): Map<SandboxId, number[]> {
    const found = new Map<SandboxId, number[]>();
    for (const { sandboxId, position } of this.accepted)
      found.set(sandboxId, [...(found.get(sandboxId) ?? []), position]);
    return found;
  }
}

export interface WebhookWorld {
  readonly world: World;
  readonly receiver: Receiver;
  readonly webhooks: Webhooks;
  /** Another server on the same database, or this one after a restart. */
  another(parts?: Partial<WebhooksParts>): Promise<Webhooks>;
  /** Another server that the test kills: it is not stopped in the end. */
  doomed(parts: Partial<WebhooksParts>): Promise<void>;
  /** Creates a sandbox, which writes events. */
  sandbox(): Promise<SandboxId>;
  /** All events of the organisation. */
  ledger(): Promise<EventView[]>;
  dispose(): Promise<void>;
}

export async function webhookWorld(
  kind: DatabaseKind,
  settings: Partial<WebhookSettings> = {},
): Promise<WebhookWorld> {
  const world = await makeWorld(kind);
  const receiver = new Receiver();
  const opened: Webhooks[] = [];
  let servers = 0;
  const open = async (more: Partial<WebhooksParts>) => {
    const webhooks = new Webhooks({
      engine: world.engine,
      db: world.db,
      clock: world.clock,
      ids: randomIds,
      serverId: `server-${++servers}`,
      serverSecret: SERVER_SECRET,
      send: receiver.send,
      check: new AddressCheck({ allowed: [], clock: world.clock }),
      settings: { ...DEFAULT_WEBHOOK_SETTINGS, ...settings },
      report: (what, facts) => world.reported.push({ what, facts }),
      atFaultPoint: () => {},
      alone: true,
      ...more,
    });
    await webhooks.start();
    return webhooks;
  };
  const another = async (more: Partial<WebhooksParts> = {}) => {
    const webhooks = await open(more);
    opened.push(webhooks);
    return webhooks;
  };
  const webhooks = await another();
  return {
    world,
    receiver,
    webhooks,
    another,
    doomed: async (more) => void (await open(more)),
    sandbox: async () => (await world.engine.create({ org: ORG }, {})).sandbox.id,
    ledger: () => world.engine.events({ org: ORG, afterPosition: 0 }, 1_000),
    dispose: async () => {
      await Promise.all(opened.map((one) => one.stop()));
      await world.dispose();
    },
  };
}
