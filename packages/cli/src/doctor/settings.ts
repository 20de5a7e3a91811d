/** The settings of the running server: which differ from their defaults, and their sources. */
import type { SettingView, Torpor } from '@torpor/sdk';
import type { Colors } from '../colors.ts';
import { columns } from '../columns.ts';
import type { Check } from './check.ts';

/** Empty for the key of a user, and for an old server without this route. */
export async function readSettings(torpor: Torpor): Promise<readonly SettingView[]> {
  return torpor.settings().catch(() => []);
}

export function isChanged({ value, default: usual }: SettingView): boolean {
  return value !== usual;
}

export function checkSettings(settings: readonly SettingView[]): Check[] {
  if (settings.length === 0) return [];
  const what = 'Settings';
  const changed = settings.filter(isChanged);
  const more = '`torpor doctor --settings` lists all';
  if (changed.length === 0)
    return [{ is: 'good', what, detail: `all ${settings.length} have their defaults; ${more}` }];
  const list = changed.map(
    ({ name, value, default: usual, source }) => `${name} = ${value} (${source}; default ${usual})`,
  );
  return [{ is: 'note', what, detail: `${list.join(', ')}; ${more}` }];
}

export function settingsText(settings: readonly SettingView[], colors: Colors): string {
  const rows = settings.map(({ name, value, unit, default: usual, min, max, source, meaning }) => [
    name,
    String(value),
    unit,
    String(usual),
    `${min}..${max}`,
    source,
    meaning,
  ]);
  return columns(['SETTING', 'VALUE', 'UNIT', 'DEFAULT', 'RANGE', 'FROM', 'MEANING'], rows, colors);
}
