/** Times, durations and sizes as people read them. */
const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const date = new Intl.DateTimeFormat(undefined, {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
});

/** With the day when it is not today. */
export function clockTime(at: number | undefined, now = Date.now()): string {
  if (at === undefined) return 'an unknown time';
  return new Date(at).toDateString() === new Date(now).toDateString() ? time.format(at) : date.format(at);
}

/** Keeps a number and its unit on one line. */
const SPACE = '\u00a0';

const STEPS: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'min'],
  [1, 's'],
];

/** The two largest units: `2 d 4 h`, `3 min 20 s`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))}${SPACE}ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)}${SPACE}s`;
  let rest = Math.floor(ms / 1_000);
  const shown: string[] = [];
  for (const [seconds, unit] of STEPS) {
    const count = Math.floor(rest / seconds);
    rest -= count * seconds;
    if (count > 0) shown.push(`${count}${SPACE}${unit}`);
    else if (shown.length > 0) break;
  }
  return shown.slice(0, 2).join(' ');
}

/** Whole seconds, for a countdown. */
export function countdown(ms: number): string {
  return ms <= 0
    ? 'now'
    : ms < 1_000
      ? `1${SPACE}s`
      : duration(Math.ceil(ms / 1_000) * 1_000).replace('.0', '');
}

export function ago(at: number, now: number): string {
  const ms = now - at;
  return ms < 5_000 ? 'just now' : `${duration(ms).replace(/\.\d/, '').split(' ')[0]} ago`;
}

const SIZES = ['B', 'kB', 'MB', 'GB', 'TB'];

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1_000 && unit < SIZES.length - 1) {
    value /= 1_000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)}${SPACE}${SIZES[unit]}`;
}

/** `1 sandbox`, `2 sandboxes`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}
