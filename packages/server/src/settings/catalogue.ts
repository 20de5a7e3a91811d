/** Every setting of every package, by group. */
import {
  BUILD_FILE_SETTING_ORDER,
  BUILD_FILE_SETTINGS,
  BUILD_SETTING_ORDER,
  BUILD_SETTINGS,
} from '@torpor/builds';
import { ENGINE_SETTING_ORDER, ENGINE_SETTINGS, STORE_SETTING_ORDER, STORE_SETTINGS } from '@torpor/engine';
import { GATEWAY_SETTING_ORDER, GATEWAY_SETTINGS } from '@torpor/gateway';
import type { Setting, SettingTable, SettingValues } from '@torpor/protocol';
import { RUNTIME_SETTING_ORDER, RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { SESSION_SETTING_ORDER, SESSION_SETTINGS } from '@torpor/sessions';
import { TEMPLATE_BUILD_SETTING_ORDER, TEMPLATE_BUILD_SETTINGS } from '@torpor/template-builds';
import { WEBHOOK_SETTING_ORDER, WEBHOOK_SETTINGS } from '@torpor/webhooks';
import { SERVER_SETTING_ORDER, SERVER_SETTINGS } from '../settings.ts';

const TABLES = {
  engine: ENGINE_SETTINGS,
  server: SERVER_SETTINGS,
  gateway: GATEWAY_SETTINGS,
  builds: BUILD_SETTINGS,
  buildFiles: BUILD_FILE_SETTINGS,
  templateBuilds: TEMPLATE_BUILD_SETTINGS,
  sessions: SESSION_SETTINGS,
  webhooks: WEBHOOK_SETTINGS,
  store: STORE_SETTINGS,
  runtimes: RUNTIME_SETTINGS,
} as const satisfies Readonly<Record<string, SettingTable>>;

type Tables = typeof TABLES;
type Group = keyof Tables;
export type AllSettings = { readonly [G in Group]: SettingValues<Tables[G]> };

export const GROUPS = Object.keys(TABLES) as Group[];

const ORDERS: Readonly<Record<Group, readonly (readonly [string, '<' | '<=', string])[]>> = {
  engine: ENGINE_SETTING_ORDER,
  server: SERVER_SETTING_ORDER,
  gateway: GATEWAY_SETTING_ORDER,
  builds: BUILD_SETTING_ORDER,
  buildFiles: BUILD_FILE_SETTING_ORDER,
  templateBuilds: TEMPLATE_BUILD_SETTING_ORDER,
  sessions: SESSION_SETTING_ORDER,
  webhooks: WEBHOOK_SETTING_ORDER,
  store: STORE_SETTING_ORDER,
  runtimes: RUNTIME_SETTING_ORDER,
};

export interface DescribedSetting extends Setting {
  /** `engine.callMs`. */
  readonly name: string;
  readonly group: Group;
  /** `callMs`. */
  readonly key: string;
  /** `TORPOR_ENGINE_CALL_MS`. */
  readonly variable: string;
}

export const CATALOGUE: readonly DescribedSetting[] = GROUPS.flatMap((group) =>
  Object.entries<Setting>(TABLES[group]).map(([key, setting]) => ({
    ...setting,
    name: `${group}.${key}`,
    group,
    key,
    variable: `${variablePrefix(group)}${upperSnake(key)}`,
  })),
);

/** Order constraints between two settings, by their full names. */
export const ORDER: readonly { readonly low: string; readonly is: '<' | '<='; readonly high: string }[] =
  GROUPS.flatMap((group) =>
    ORDERS[group].map(([low, is, high]) => ({ low: `${group}.${low}`, is, high: `${group}.${high}` })),
  );

/** Every setting with the value that `readValue` returns for its full name. */
export function settingsWith(readValue: (name: string) => number): AllSettings {
  const values = <T extends SettingTable>(group: Group, table: T) =>
    Object.fromEntries(
      Object.keys(table).map((key) => [key, readValue(`${group}.${key}`)]),
    ) as SettingValues<T>;
  return {
    engine: values('engine', TABLES.engine),
    server: values('server', TABLES.server),
    gateway: values('gateway', TABLES.gateway),
    builds: values('builds', TABLES.builds),
    buildFiles: values('buildFiles', TABLES.buildFiles),
    templateBuilds: values('templateBuilds', TABLES.templateBuilds),
    sessions: values('sessions', TABLES.sessions),
    webhooks: values('webhooks', TABLES.webhooks),
    store: values('store', TABLES.store),
    runtimes: values('runtimes', TABLES.runtimes),
  };
}

export const DEFAULT_ALL_SETTINGS: AllSettings = settingsWith(
  (name) => CATALOGUE.find((one) => one.name === name)?.default ?? 0,
);

export function variablePrefix(group: string): string {
  return `TORPOR_${upperSnake(group)}_`;
}

function upperSnake(name: string): string {
  return name.replaceAll(/[A-Z]/g, '_$&').toUpperCase();
}
