/** The webhooks of a server, whose requests leave this machine only to allowed addresses. */
import {
  AddressCheck,
  sendRequest,
  type WebhookPoint,
  type WebhookSettings,
  Webhooks,
  type WebhooksParts,
} from '@torpor/webhooks';

export function openWebhooks(
  parts: Omit<WebhooksParts, 'check' | 'send' | 'settings' | 'atFaultPoint'>,
  settings: WebhookSettings,
  allowed: readonly string[],
  atFaultPoint: (point: WebhookPoint) => Promise<void> | void = () => {},
): Webhooks {
  const check = new AddressCheck({ allowed, clock: parts.clock });
  return new Webhooks({ ...parts, check, send: sendRequest(check), settings, atFaultPoint });
}
