/** Reports whether entries of some directories have been added, removed or changed since they were last read. */
import { type FSWatcher, watch } from 'node:fs';
import { setImmediate } from 'node:timers/promises';

export class DirectoryWatcher {
  #watchers: FSWatcher[] = [];
  #hasChanged = true;

  /** Must be called before the directories are read. When the kernel refuses more watches, everything counts as changed. */
  begin(paths: readonly string[]): void {
    this.close();
    this.#hasChanged = false;
    const markChanged = () => {
      this.#hasChanged = true;
    };
    try {
      for (const path of paths) {
        const watcher = watch(path, { persistent: false }, markChanged);
        watcher.on('error', markChanged);
        this.#watchers.push(watcher);
      }
    } catch {
      this.close();
    }
  }

  /** Waits for pending events of the kernel: twice, because the first may belong to a poll that was under way. */
  async isQuiet(): Promise<boolean> {
    for (let turns = 0; turns < 2 && !this.#hasChanged; turns++) await setImmediate();
    return !this.#hasChanged;
  }

  close(): void {
    for (const watcher of this.#watchers.splice(0)) watcher.close();
    this.#hasChanged = true;
  }
}
