export { SESSION_POINTS, type SessionPoint } from './context.ts';
export { type SessionReply, Sessions, type SessionsParts } from './sessions.ts';
export {
  DEFAULT_SESSION_SETTINGS,
  SESSION_SETTING_ORDER,
  SESSION_SETTINGS,
  type SessionSettings,
} from './settings.ts';
export type { DeliveryReceipt, PastTurn, ProgramOutput, TurnMessage, TurnPort } from './turn-port.ts';
