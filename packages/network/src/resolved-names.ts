/**
 * Which names our resolver answered with which addresses, for one sandbox. A protocol that shows no name is let
 * to an address that was given out for an allowed one.
 */

/** Long enough for programs that keep an answer; a name may belong to somebody else one day. */
const KEPT_MS = 3_600_000;
const ADDRESSES_AT_MOST = 1_024;
const NAMES_AT_MOST = 16;

export class ResolvedNames {
  /** The longest unused first. */
  readonly #byAddress = new Map<number, Map<string, number>>();

  remember(name: string, addresses: readonly number[], now: number): void {
    for (const address of addresses) {
      const names = this.#byAddress.get(address) ?? new Map<string, number>();
      names.delete(name);
      names.set(name, now + KEPT_MS);
      dropOldest(names, NAMES_AT_MOST);
      this.#byAddress.delete(address);
      this.#byAddress.set(address, names);
    }
    dropOldest(this.#byAddress, ADDRESSES_AT_MOST);
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
