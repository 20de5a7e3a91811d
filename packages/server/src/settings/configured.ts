/**
 * The settings of this server. In order of precedence: `--set engine.callMs=60s`, `TORPOR_ENGINE_CALL_MS=60s`,
 * `{"settings": {"engine": {"callMs": "60s"}}}` in the configuration file, the default.
 */
import { rangeOf, type SettingSource, type SettingView, settingSchema, TorporError } from '@torpor/protocol';
import {
  type AllSettings,
  CATALOGUE,
  type DescribedSetting,
  GROUPS,
  ORDER,
  settingsWith,
  variablePrefix,
} from './catalogue.ts';

/** One value of a setting from one source. */
export interface GivenSetting {
  readonly name: string;
  readonly value: unknown;
  readonly source: Exclude<SettingSource, 'default'>;
  /** The flag, the variable or the place in the file, for messages. */
  readonly where: string;
}

export interface ConfiguredSettings {
  readonly settings: AllSettings;
  /** Every setting with its value and source. */
  readonly list: readonly SettingView[];
}

const HINT = '`torpor doctor --settings` and docs/operations.md list every setting with its range.';

/** `--set name=value`. */
export function settingFromFlag(text: string): GivenSetting {
  const at = text.indexOf('=');
  if (at < 1) throw refusal(`--set ${text}: write --set group.name=value, such as --set engine.callMs=60s.`);
  const name = text.slice(0, at).trim();
  return { name, value: text.slice(at + 1), source: 'flag', where: `--set ${name}` };
}

/** Kubernetes sets these variables for every service of a namespace. They are not settings. */
const SERVICE_LINK = /_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_\w+)?)$/;

/** An empty variable counts as not set. */
export function settingsFromEnvironment(env: NodeJS.ProcessEnv): GivenSetting[] {
  const prefixes = GROUPS.map(variablePrefix);
  return Object.entries(env).flatMap(([variable, value]): GivenSetting[] => {
    if (!value || !prefixes.some((prefix) => variable.startsWith(prefix))) return [];
    const described = CATALOGUE.find((one) => one.variable === variable);
    if (described !== undefined)
      return [{ name: described.name, value, source: 'environment', where: variable }];
    if (SERVICE_LINK.test(variable)) return [];
    throw refusal(`${variable}: no such setting.`);
  });
}

/** The object `settings` of the file. */
export function settingsFromFile(settings: unknown, file: string): GivenSetting[] {
  if (settings === undefined) return [];
  return entriesOf(settings, `${file}: settings`).flatMap(([group, values]) =>
    entriesOf(values, `${file}: settings.${group}`).map(([key, value]) => ({
      name: `${group}.${key}`,
      value,
      source: 'file' as const,
      where: `${file}: settings.${group}.${key}`,
    })),
  );
}

function entriesOf(value: unknown, where: string): [string, unknown][] {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return Object.entries(value);
  throw refusal(`${where}: must be an object.`);
}

/** Takes the weakest source first. Every value is checked, also one that a stronger source replaces. */
export function configureSettings(given: readonly GivenSetting[]): ConfiguredSettings {
  const chosen = new Map<string, GivenSetting & { readonly parsed: number }>();
  for (const one of given) {
    const described = CATALOGUE.find(({ name }) => name === one.name);
    if (described === undefined) throw refusal(`${one.where}: no setting is called "${one.name}".`);
    const before = chosen.get(one.name);
    if (before?.source === one.source && before.where !== one.where)
      throw refusal(`${one.name} is set twice, by ${before.where} and by ${one.where}.`);
    chosen.set(one.name, { ...one, parsed: parsedValue(described, one) });
  }
  const list = CATALOGUE.map((described): SettingView => {
    const { name, unit, min, max, meaning, variable, default: usual } = described;
    const { parsed: value, source } = chosen.get(name) ?? { parsed: usual, source: 'default' as const };
    return { name, value, default: usual, unit, min, max, source, variable, meaning };
  });
  refuseBrokenOrder(list, (name) => chosen.get(name)?.where ?? 'default');
  const values = new Map(list.map(({ name, value }) => [name, value]));
  return { settings: settingsWith((name) => values.get(name) ?? 0), list };
}

function parsedValue(described: DescribedSetting, { where, value }: GivenSetting): number {
  const parsed = settingSchema(described).safeParse(value);
  if (parsed.success) return parsed.data;
  const written = typeof value === 'string' ? value : JSON.stringify(value);
  throw refusal(`${where}: ${written} is not a value of ${described.name}, which is ${rangeOf(described)}.`);
}

function refuseBrokenOrder(list: readonly SettingView[], whereOf: (name: string) => string): void {
  const valueOfName = (name: string) => list.find((one) => one.name === name)?.value ?? 0;
  for (const { low, is, high } of ORDER) {
    const [a, b] = [valueOfName(low), valueOfName(high)];
    if (is === '<' ? a < b : a <= b) continue;
    const must = is === '<' ? 'must be below' : 'must not be above';
    throw refusal(`${low} (${a}, from ${whereOf(low)}) ${must} ${high} (${b}, from ${whereOf(high)}).`);
  }
}

function refusal(message: string): TorporError {
  return new TorporError('invalid_request', message, { hint: HINT });
}
