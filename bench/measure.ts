/** Measures times and prints medians and 95th percentiles, because a mean hides slow requests. */

export interface Times {
  readonly count: number;
  readonly perSecond: number;
  readonly p50: number;
  readonly p95: number;
}

/** Runs `work` count times in sequence and measures each run in milliseconds. */
export async function time(count: number, work: (i: number) => Promise<unknown>): Promise<Times> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    await work(i);
    times.push(performance.now() - start);
  }
  return timesOf(times);
}

export function timesOf(times: readonly number[]): Times {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  const seconds = times.reduce((sum, ms) => sum + ms, 0) / 1_000;
  return { count: sorted.length, perSecond: sorted.length / seconds, p50: at(0.5), p95: at(0.95) };
}

export function row(cells: readonly (string | number)[]): string {
  const text = cells.map((cell) => (typeof cell === 'number' ? cell.toFixed(cell < 10 ? 2 : 0) : cell));
  return text.map((cell, i) => (i === 0 ? cell.padEnd(62) : cell.padStart(11))).join('');
}
