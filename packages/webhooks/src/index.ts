export { AddressCheck, isNetwork } from './address-check.ts';
export { sendRequest } from './send.ts';
export {
  DEFAULT_WEBHOOK_SETTINGS,
  WEBHOOK_SETTING_ORDER,
  WEBHOOK_SETTINGS,
  type WebhookSettings,
} from './settings.ts';
export { type WebhookPoint, Webhooks, type WebhooksParts } from './webhooks.ts';
