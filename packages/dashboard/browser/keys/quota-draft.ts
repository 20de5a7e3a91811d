/** Quotas as people read and write them. An empty text means that there is no limit. */
import type { Quotas } from '@torpor/sdk';
import { numberIn } from '../ui/form-values.ts';

export type QuotaName = keyof Quotas;
export type QuotaDraft = Readonly<Record<QuotaName, string>>;

export function quotaNames(quotas: Quotas): QuotaName[] {
  return Object.keys(quotas) as QuotaName[];
}

/** `runningSandboxes` is `running sandboxes`. */
export function quotaTitle(name: QuotaName): string {
  return name.replace(/Mb$/, ' MB').replace(/[A-Z](?=[a-z])/g, (letter) => ` ${letter.toLowerCase()}`);
}

export function quotaDraftOf(quotas: Quotas): QuotaDraft {
  return Object.fromEntries(
    quotaNames(quotas).map((name) => [name, quotas[name] === null ? '' : String(quotas[name])]),
  ) as QuotaDraft;
}

/** Only what was changed, so that a change from another page is kept. Null removes a quota. */
export function quotaChangeOf(draft: QuotaDraft, quotas: Quotas): Partial<Quotas> {
  const changed = quotaNames(quotas).flatMap((name) => {
    const limit = numberIn(draft[name]) ?? null;
    return limit === quotas[name] ? [] : [[name, limit] as const];
  });
  return Object.fromEntries(changed);
}
