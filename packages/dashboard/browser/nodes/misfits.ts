/** Which nodes cannot restore each other's memory images. Pure functions. */
import type { NodeView } from '@torpor/sdk';

export interface Misfit {
  readonly runtime: string;
  /** Names of nodes. Those of one group fit each other. */
  readonly groups: readonly (readonly string[])[];
}

/** The runtimes of which the nodes have more than one fingerprint. A node without the runtime is in no group. */
export function misfitsOf(nodes: readonly Pick<NodeView, 'name' | 'fingerprint'>[]): Misfit[] {
  const runtimes = new Set(nodes.flatMap(({ fingerprint }) => Object.keys(fingerprint)));
  return [...runtimes].toSorted().flatMap((runtime) => {
    const groups = new Map<string, string[]>();
    for (const { name, fingerprint } of nodes) {
      const text = fingerprint[runtime];
      if (text !== undefined) groups.set(text, [...(groups.get(text) ?? []), name]);
    }
    return groups.size > 1 ? [{ runtime, groups: [...groups.values()] }] : [];
  });
}
