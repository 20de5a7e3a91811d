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
  const began = performance.now();
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    await work(i);
    times.push(performance.now() - start);
  }
  const seconds = (performance.now() - began) / 1_000;
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.min(times.length - 1, Math.floor(share * times.length))] ?? 0;
  return { count, perSecond: count / seconds, p50: at(0.5), p95: at(0.95) };
}

export function row(cells: readonly (string | number)[]): string {
  const text = cells.map((cell) => (typeof cell === 'number' ? cell.toFixed(cell < 10 ? 2 : 0) : cell));
  return text.map((cell, i) => (i === 0 ? cell.padEnd(46) : cell.padStart(11))).join('');
}
