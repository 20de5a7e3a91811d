/**
 * Settings that an operator can change. Each has one definition, from which its default, the check of its
 * value, its environment variable and its line in `torpor doctor --settings` and in the docs are derived.
 */
import { z } from 'zod';

const SETTING_UNITS = ['ms', 's', 'bytes', 'count'] as const;
type SettingUnit = (typeof SETTING_UNITS)[number];

export interface Setting {
  readonly unit: SettingUnit;
  readonly default: number;
  readonly min: number;
  readonly max: number;
  readonly meaning: string;
}

export type SettingTable = Readonly<Record<string, Setting>>;
export type SettingValues<T extends SettingTable> = { readonly [K in keyof T]: number };
/** `['callMs', '<=', 'operationMs']`: values in the wrong order would make one of the two useless. */
export type SettingOrder<T extends SettingTable> = readonly [keyof T & string, '<' | '<=', keyof T & string];

type Range = Partial<Pick<Setting, 'min' | 'max'>>;

export const SECOND_MS = 1_000;
export const MINUTE_MS = 60 * SECOND_MS;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
/** For times that are only compared and never set as a timer, such as a retention. */
export const YEAR_MS = 365 * DAY_MS;
/** Node fires a timer at once when its delay exceeds 31 bits, a little more than 24 days. */
const MAX_TIMER_MS = 24 * DAY_MS;

/** In milliseconds. */
export function duration(
  preset: number,
  meaning: string,
  { min = 1, max = MAX_TIMER_MS }: Range = {},
): Setting {
  return { unit: 'ms', default: preset, min, max, meaning };
}

export function durationSeconds(
  preset: number,
  meaning: string,
  { min = 1, max = MAX_TIMER_MS / SECOND_MS }: Range = {},
): Setting {
  return { unit: 's', default: preset, min, max, meaning };
}

export function byteCount(
  preset: number,
  meaning: string,
  { min = 1, max = 1024 ** 4 }: Range = {},
): Setting {
  return { unit: 'bytes', default: preset, min, max, meaning };
}

export function count(preset: number, meaning: string, { min = 1, max = 1_000_000 }: Range = {}): Setting {
  return { unit: 'count', default: preset, min, max, meaning };
}

export function defaultsOf<T extends SettingTable>(table: T): SettingValues<T> {
  const values = Object.entries(table).map(([name, setting]) => [name, setting.default] as const);
  return Object.fromEntries(values) as SettingValues<T>;
}

/** The value of each suffix in milliseconds or bytes. */
const TIME_SUFFIXES: Readonly<Record<string, number>> = {
  ms: 1,
  s: SECOND_MS,
  m: MINUTE_MS,
  h: HOUR_MS,
  d: DAY_MS,
};
const BYTE_SUFFIXES: Readonly<Record<string, number>> = {
  b: 1,
  kib: 1024,
  mib: 1024 ** 2,
  gib: 1024 ** 3,
  tib: 1024 ** 4,
};
const SUFFIXES: Readonly<Record<SettingUnit, Readonly<Record<string, number>>>> = {
  ms: TIME_SUFFIXES,
  s: TIME_SUFFIXES,
  bytes: BYTE_SUFFIXES,
  count: {},
};
const WORTH_OF_UNIT: Readonly<Record<SettingUnit, number>> = { ms: 1, s: SECOND_MS, bytes: 1, count: 1 };
const NUMBER = /^(\d{1,16}(?:\.\d{1,6})?)([a-z]*)$/;

/** Parses `90s`, `5m`, `24h` and `16MiB` into the unit of the setting; other text is returned unchanged. */
function inUnit(setting: Setting, given: unknown): unknown {
  if (typeof given !== 'string') return given;
  const [, digits, suffix] = NUMBER.exec(given.trim().toLowerCase()) ?? [];
  if (digits === undefined) return given;
  if (suffix === '') return Number(digits);
  const worth = Object.entries(SUFFIXES[setting.unit]).find(([name]) => name === suffix)?.[1];
  return worth === undefined ? given : (Number(digits) * worth) / WORTH_OF_UNIT[setting.unit];
}

/** Accepts a number, or text with a number and an optional unit. */
export function settingSchema(setting: Setting) {
  return z.preprocess((given) => inUnit(setting, given), z.number().int().min(setting.min).max(setting.max));
}

const FORMS: Readonly<Record<SettingUnit, string>> = {
  ms: 'milliseconds, or 90s, 5m, 24h, 7d',
  s: 'seconds, or 90s, 5m, 24h, 7d',
  bytes: 'bytes, or 64KiB, 16MiB, 2GiB',
  count: 'a whole number',
};

export function rangeOf({ unit, min, max }: Setting): string {
  return `${min} to ${max} (${FORMS[unit]})`;
}

export const SETTING_SOURCES = ['default', 'file', 'environment', 'flag'] as const;
export type SettingSource = (typeof SETTING_SOURCES)[number];

/** One setting of a running server. Secrets are never settings. */
export const settingViewSchema = z
  .object({
    name: z.string().meta({ description: '`engine.callMs`: its group and its name.' }),
    value: z.number().int(),
    default: z.number().int(),
    unit: z.enum(SETTING_UNITS),
    min: z.number().int(),
    max: z.number().int(),
    source: z.enum(SETTING_SOURCES).meta({ description: 'Where the server took the value from.' }),
    variable: z.string().meta({ description: 'The environment variable that sets it.' }),
    meaning: z.string(),
  })
  .meta({ id: 'Setting' });
export type SettingView = z.infer<typeof settingViewSchema>;
