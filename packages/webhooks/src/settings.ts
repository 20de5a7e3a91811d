/** Every limit of webhooks. A new setting is one line here. */
import {
  count,
  DAY_MS,
  defaultsOf,
  duration,
  HOUR_MS,
  type SettingOrder,
  type SettingValues,
  YEAR_MS,
} from '@torpor/protocol';

export const WEBHOOK_SETTINGS = {
  requestMs: duration(10_000, 'How long a receiver may take to accept an event.'),
  firstRetryMs: duration(
    1_000,
    'How long after the first failure an event is sent again; the time doubles with each failure.',
  ),
  longestRetryMs: duration(10 * 60_000, 'The longest time between two attempts to send an event.'),
  giveUpMs: duration(DAY_MS, 'An event that could not be delivered for this long becomes a dead letter.', {
    max: YEAR_MS,
  }),
  atOnce: count(8, 'Events of one webhook that are sent at once, each of another sandbox.', { max: 256 }),
  window: count(
    1_000,
    'Events of one webhook that may wait, and ten times as many behind events that fail; the others stay in the ledger.',
    {
      max: 100_000,
    },
  ),
  perOrg: count(20, 'Webhooks of one organisation.', { max: 10_000 }),
  leaseMs: duration(
    60_000,
    'Another server may send for a webhook after its server was silent for this long.',
    {
      max: HOUR_MS,
    },
  ),
  noticeAtLeastEveryMs: duration(
    2_000,
    'The server looks for events and due retries after this long without a notification of the database.',
    { min: 10 },
  ),
} as const;

export type WebhookSettings = SettingValues<typeof WEBHOOK_SETTINGS>;
export const DEFAULT_WEBHOOK_SETTINGS: WebhookSettings = defaultsOf(WEBHOOK_SETTINGS);

export const WEBHOOK_SETTING_ORDER: readonly SettingOrder<typeof WEBHOOK_SETTINGS>[] = [
  ['requestMs', '<', 'leaseMs'],
  ['noticeAtLeastEveryMs', '<', 'leaseMs'],
  ['firstRetryMs', '<=', 'longestRetryMs'],
  ['longestRetryMs', '<=', 'giveUpMs'],
];
