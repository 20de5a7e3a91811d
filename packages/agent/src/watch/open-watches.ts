/**
 * Makes open watches report the agent's own changes before the call that made them is answered. A client that wrote a
 * file expects the watch to have the event when the answer arrives, but the kernel may report the change later. So
 * each operation names the paths it changes, and is answered after every watch has examined them.
 */
import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

export interface SettlingWatch {
  /** Resolves when all reported changes, and changes of these paths, can be read as events. */
  settle(changed: readonly string[]): Promise<void>;
}

export interface AgentChange {
  /** Resolves when all watches have the events of the change. Never rejects. */
  reported(): Promise<void>;
}

export class OpenWatches {
  readonly #watches = new Set<SettlingWatch>();
  /** The number of the agent's own operations that are changing each path. */
  readonly #changing = new Map<string, number>();

  add(watch: SettlingWatch): void {
    this.#watches.add(watch);
  }

  delete(watch: SettlingWatch): void {
    this.#watches.delete(watch);
  }

  /** Whether the agent is changing this path. Links above it must be resolved. */
  isAgentChanging(path: string): boolean {
    return this.#changing.has(path);
  }

  /** Must be called before the paths are changed. The caller must call `reported` afterwards, also after a failure. */
  async begin(paths: readonly string[]): Promise<AgentChange> {
    if (this.#watches.size === 0 || paths.length === 0) return { reported: async () => {} };
    const changed = await Promise.all(paths.map(resolveParentLinks));
    for (const path of changed) this.#changing.set(path, (this.#changing.get(path) ?? 0) + 1);
    return {
      reported: async () => {
        await Promise.all([...this.#watches].map((watch) => watch.settle(changed)));
        for (const path of changed) this.#endChange(path);
      },
    };
  }

  #endChange(path: string): void {
    const others = (this.#changing.get(path) ?? 1) - 1;
    if (others === 0) this.#changing.delete(path);
    else this.#changing.set(path, others);
  }
}

/** Resolves all links in the path except in its last name, as far as the directories exist. */
async function resolveParentLinks(path: string): Promise<string> {
  const parent = dirname(path);
  if (parent === path) return path;
  const above = await realpath(parent).catch(() => resolveParentLinks(parent));
  return join(above, basename(path));
}
