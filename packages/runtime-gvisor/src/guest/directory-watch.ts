/** Tells whether anything has come, gone or changed in some directories since they were last looked at. */
import { type FSWatcher, watch } from 'node:fs';
import { setImmediate } from 'node:timers/promises';

export class DirectoryWatch {
  private watchers: FSWatcher[] = [];
  private hasChanged = true;

  /** To be called before they are looked at. Where the kernel watches no more directories, everything counts as changed. */
  begin(paths: readonly string[]): void {
    this.close();
    this.hasChanged = false;
    const note = () => {
      this.hasChanged = true;
    };
    try {
      for (const path of paths) {
        const watcher = watch(path, { persistent: false }, note);
        watcher.on('error', note);
        this.watchers.push(watcher);
      }
    } catch {
      this.close();
    }
  }

  /** Waits for what the kernel has to say until now: twice, because the first may be of a look that was under way. */
  async isQuiet(): Promise<boolean> {
    for (let looks = 0; looks < 2 && !this.hasChanged; looks++) await setImmediate();
    return !this.hasChanged;
  }

  close(): void {
    for (const watcher of this.watchers.splice(0)) watcher.close();
    this.hasChanged = true;
  }
}
