/**
 * The watches that are open, for the operations of the agent itself. A client that wrote a file expects that the
 * watch knows of it when the answer comes, but the kernel reports a change when it likes. So each operation says
 * which paths it changes, and is answered after every watch has looked at them.
 */
import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

export interface SettlingWatch {
  /** Resolves when everything that is known to have changed, and these paths, can be read as events. */
  settle(changed: readonly string[]): Promise<void>;
}

export interface OwnChange {
  /** Resolves when all watches have told it. Never rejects. */
  told(): Promise<void>;
}

export class OpenWatches {
  readonly #watches = new Set<SettlingWatch>();
  /** How many operations of the agent are changing a path. */
  readonly #changing = new Map<string, number>();

  add(watch: SettlingWatch): void {
    this.#watches.add(watch);
  }

  delete(watch: SettlingWatch): void {
    this.#watches.delete(watch);
  }

  /** Whether the agent is changing this path. Links above it must be resolved. */
  isOwn(path: string): boolean {
    return this.#changing.has(path);
  }

  /** To be called before the paths are changed. `told` has to follow, also when the operation fails. */
  async begin(paths: readonly string[]): Promise<OwnChange> {
    if (this.#watches.size === 0 || paths.length === 0) return { told: async () => {} };
    const changed = await Promise.all(paths.map(resolved));
    for (const path of changed) this.#changing.set(path, (this.#changing.get(path) ?? 0) + 1);
    return {
      told: async () => {
        await Promise.all([...this.#watches].map((watch) => watch.settle(changed)));
        for (const path of changed) this.#end(path);
      },
    };
  }

  #end(path: string): void {
    const others = (this.#changing.get(path) ?? 1) - 1;
    if (others === 0) this.#changing.delete(path);
    else this.#changing.set(path, others);
  }
}

/** The path with all links above its last name resolved, as far as there is something above it. */
async function resolved(path: string): Promise<string> {
  const parent = dirname(path);
  if (parent === path) return path;
  const above = await realpath(parent).catch(() => resolved(parent));
  return join(above, basename(path));
}
