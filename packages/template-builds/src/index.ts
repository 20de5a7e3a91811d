export type { TemplateBuild } from './build.ts';
export type { LogLevel, LogLine } from './build-log.ts';
export type { FindRemoteUpload, RemoteUpload } from './files/file-store.ts';
export type { BuildOrder, BuildStep } from './order.ts';
export {
  DEFAULT_TEMPLATE_BUILD_SETTINGS,
  TEMPLATE_BUILD_SETTING_ORDER,
  TEMPLATE_BUILD_SETTINGS,
  type TemplateBuildSettings,
} from './settings.ts';
export { TemplateBuilds, type TemplateBuildsContext } from './template-builds.ts';
