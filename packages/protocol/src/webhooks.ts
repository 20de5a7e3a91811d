/** Webhooks: events of the ledger, sent to an address of the organisation. */
import { z } from 'zod';
import { EVENT_TYPES, type EventType } from './events.ts';
import { idSchema } from './ids.ts';

type EventFamily = EventType extends `${infer Family}.${string}` ? `${Family}.*` : never;
const families = [...new Set(EVENT_TYPES.map((type) => `${type.split('.', 1)[0]}.*`))] as EventFamily[];

/** `sandbox.paused`, or `sandbox.*` for all types of a family. */
export const eventFilterSchema = z.enum([...EVENT_TYPES, ...families]);
export type EventFilter = z.infer<typeof eventFilterSchema>;

/** Whether a webhook with these filters gets events of this type. No filter: all types. */
export function matchesFilter(filters: readonly EventFilter[], type: EventType): boolean {
  return (
    filters.length === 0 ||
    filters.some((filter) => filter === type || filter === `${type.split('.', 1)[0]}.*`)
  );
}

const MAX_URL = 2_048;
const webhookUrlSchema = z
  .url({ protocol: /^https?$/ })
  .max(MAX_URL)
  .refine((text) => !URL.canParse(text) || isWithoutCredentials(new URL(text)), {
    message: 'must not contain a user name or password',
  });

function isWithoutCredentials({ username, password }: URL): boolean {
  return username === '' && password === '';
}

const position = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

export const createWebhookRequestSchema = z
  .strictObject({
    url: webhookUrlSchema,
    events: z.array(eventFilterSchema).max(100).default([]).meta({
      description: 'Event types, or families such as `sandbox.*`. Empty: all events.',
    }),
    afterPosition: position.optional().meta({
      description: 'Sends the events after this position of the ledger. Default: only new events.',
    }),
  })
  .meta({ id: 'CreateWebhook' });
export type CreateWebhookRequest = z.input<typeof createWebhookRequestSchema>;

export const webhookViewSchema = z
  .object({
    id: idSchema('hook'),
    url: z.string(),
    events: z.array(eventFilterSchema),
    position: position.meta({
      description: 'Events up to this position are delivered, waiting (`waiting`) or given up (`dead`).',
    }),
    waiting: z.number().int(),
    dead: z.number().int().meta({ description: 'Events that were given up; see the dead letters.' }),
    createdAt: z.number().int(),
    deliveredAt: z.number().int().nullable().meta({ description: 'The last successful delivery.' }),
    error: z
      .object({ message: z.string(), at: z.number().int() })
      .nullable()
      .meta({ description: 'The last failed delivery; null after a success.' }),
  })
  .meta({ id: 'Webhook' });
export type WebhookView = z.infer<typeof webhookViewSchema>;

export const createdWebhookSchema = webhookViewSchema
  .extend({
    secret: z.string().meta({ description: 'Shown only here. Receivers check signatures with it.' }),
  })
  .meta({ id: 'CreatedWebhook' });
export type CreatedWebhook = z.infer<typeof createdWebhookSchema>;

export const replayWebhookRequestSchema = z
  .strictObject({ fromPosition: position.min(1) })
  .meta({ id: 'ReplayWebhook' });
export type ReplayWebhookRequest = z.infer<typeof replayWebhookRequestSchema>;

export const webhookTestSchema = z
  .object({
    delivered: z.boolean(),
    status: z.number().int().nullable().meta({ description: 'Null: no HTTP response.' }),
    durationMs: z.number().int(),
    error: z.string().nullable(),
  })
  .meta({ id: 'WebhookTest' });
export type WebhookTest = z.infer<typeof webhookTestSchema>;

export const deadLetterSchema = z
  .object({
    position,
    sandboxId: idSchema('sbx'),
    eventId: idSchema('evt'),
    type: z.enum(EVENT_TYPES),
    tries: z.number().int(),
    firstTriedAt: z.number().int(),
    deadAt: z.number().int(),
    error: z.string(),
  })
  .meta({ id: 'DeadLetter' });
export type DeadLetter = z.infer<typeof deadLetterSchema>;
