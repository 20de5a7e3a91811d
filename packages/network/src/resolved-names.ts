/**
 * The addresses that our resolver returned to one sandbox, with the names that it asked for. A connection without a name may
 * go to an address that was returned for an allowed name.
 */

/** Long enough for programs that cache an answer. Limited, because an address may get another owner. */
const KEPT_MS = 3_600_000;
const MAX_ADDRESSES = 1_024;
const MAX_NAMES = 16;

export class ResolvedNames {
  /** Least recently used first. */
  readonly #byAddress = new Map<number, Map<string, number>>();

  remember(name: string, addresses: readonly number[], now: number): void {
    for (const address of addresses) {
      const names = this.#byAddress.get(address) ?? new Map<string, number>();
      names.delete(name);
      names.set(name, now + KEPT_MS);
      dropOldest(names, MAX_NAMES);
      this.#byAddress.delete(address);
      this.#byAddress.set(address, names);
    }
    dropOldest(this.#byAddress, MAX_ADDRESSES);
  }

  namesOf(address: number, now: number): string[] {
    const names = [...(this.#byAddress.get(address) ?? [])];
    return names.filter(([, until]) => until > now).map(([name]) => name);
  }
}

function dropOldest(map: Map<unknown, unknown>, most: number): void {
  for (const key of map.keys()) {
    if (map.size <= most) return;
    map.delete(key);
  }
}
