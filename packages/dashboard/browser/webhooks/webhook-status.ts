/** How a webhook fares, for people. */
import type { WebhookView } from '@torpor/sdk';
import { ago } from '../ui/units.ts';

export interface WebhookStatus {
  readonly weight: 'good' | 'warn' | 'bad';
  readonly text: string;
}

export function statusOf({ waiting, dead, error, deliveredAt }: WebhookView, now: number): WebhookStatus {
  const parts = [
    error !== null && `last failure ${ago(error.at, now)}`,
    waiting > 0 && `${waiting} waiting`,
    dead > 0 && `${dead} given up`,
  ].filter((part) => part !== false);
  if (parts.length > 0)
    return { weight: error !== null || dead > 0 ? 'bad' : 'warn', text: parts.join(', ') };
  if (deliveredAt === null) return { weight: 'good', text: 'nothing was sent yet' };
  return { weight: 'good', text: `delivered ${ago(deliveredAt, now)}` };
}
