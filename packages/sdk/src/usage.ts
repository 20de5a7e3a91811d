/** What is asked of `torpor.usage()`. */
import type { ReadOptions } from './json-calls.ts';

export interface UsageOptions extends ReadOptions {
  /** The organisation, for operator keys; else the caller's own. */
  readonly orgId?: string | undefined;
  /** Milliseconds since 1970, a date, or ISO 8601; else the beginning of the month. */
  readonly from?: number | string | Date | undefined;
  /** Else now. */
  readonly to?: number | string | Date | undefined;
}

export function momentOf(moment: number | string | Date | undefined): number | string | undefined {
  return moment instanceof Date ? moment.getTime() : moment;
}
