export { SESSION_POINTS, type SessionPoint } from './context.ts';
export type { Exchange, Inside, Receipt, Said, TurnOrder } from './inside.ts';
export { type SessionReply, Sessions, type SessionsParts } from './sessions.ts';
export {
  DEFAULT_SESSION_SETTINGS,
  SESSION_SETTING_ORDER,
  SESSION_SETTINGS,
  type SessionSettings,
} from './settings.ts';
