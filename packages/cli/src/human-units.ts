/** Parses and formats times, durations and sizes. */
import type { Retention } from '@torpor/protocol';
import { CliError } from './failure.ts';

const SPANS = [
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
  ['s', 1],
] as const;

/** The largest unit that fits, rounded down: `3m`, `2h`, `5d`. */
export function span(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  const [unit, size] = SPANS.find(([, each]) => seconds >= each) ?? ['s', 1];
  return `${Math.floor(seconds / size)}${unit}`;
}

/** `3m ago`, `in 2h`, `now`; `-` for what has no time. */
export function relative(at: number | null, now: number): string {
  if (at === null) return '-';
  if (Math.abs(at - now) < 1_000) return 'now';
  // Rounds up, so that two hours minus a moment is still `in 2h`.
  return at < now ? `${span(now - at)} ago` : `in ${span(at - now + 999)}`;
}

/** Seconds, from `90`, `90s`, `5m`, `2h` or `1d`. */
export function parseSpan(text: string): number {
  const [, digits, unit = 's'] = /^(\d+)([smhd]?)$/.exec(text.trim().toLowerCase()) ?? [];
  const size = SPANS.find(([name]) => name === (unit || 's'))?.[1];
  if (digits === undefined || size === undefined) {
    throw new CliError('INVALID_ARGUMENT', `"${text}" is not a duration.`, {
      hint: 'Write 90s, 5m, 2h or 1d.',
    });
  }
  return Number(digits) * size;
}

/** A duration as `30d`, `never`, or `default`. */
export function parseRetention(text: string): Retention {
  if (text === 'default') return text;
  return text === 'never' ? null : parseSpan(text);
}

export function retentionText(retention: Retention): string {
  if (retention === null) return 'forever';
  return retention === 'default' ? "for the server's default time" : `for ${span(retention * 1_000)}`;
}

export function parseNumber(text: string): number {
  const number = Number(text);
  if (text.trim() !== '' && Number.isFinite(number)) return number;
  throw new CliError('INVALID_ARGUMENT', `"${text}" is not a number.`);
}

export function bytes(count: number | null): string {
  if (count === null) return '-';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = count;
  let unit = 0;
  while (value >= 1_000 && unit < units.length - 1) {
    value /= 1_000;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** A measured duration: `8 ms`, `1.2 s`. */
export function elapsed(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
