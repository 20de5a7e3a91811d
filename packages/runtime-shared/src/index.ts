export { refuseRestrictions } from './refuse-restrictions.ts';
export {
  answers,
  declaredPort,
  type ServiceContext,
  serviceProcess,
  startServices,
  waitForServices,
} from './services.ts';
export {
  DEFAULT_RUNTIME_SETTINGS,
  RUNTIME_SETTING_ORDER,
  RUNTIME_SETTINGS,
  type RuntimeSettings,
} from './settings.ts';
export { mapCaptureErrors, mapCheckpointReadErrors, mapWriteErrors } from './storage-errors.ts';
