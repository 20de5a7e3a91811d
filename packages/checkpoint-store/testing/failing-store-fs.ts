/**
 * A real file system whose calls a test can watch, make fail, or interrupt as a crash of the process would: the interrupted
 * call and all later calls never resolve, and an interrupted write is half done.
 */
import { realFs, type StoreFile, type StoreFs } from '../src/store-fs.ts';

export interface FsCall {
  /** Counted from 0 over all calls. */
  readonly index: number;
  /** The function: `rename`, or `file.sync` for one on an open file. */
  readonly name: string;
  readonly path: string;
}

/** What becomes of a call: an error to fail with, `crash`, or nothing to let it pass. */
type Fate = Error | 'crash' | undefined;

export class FailingFs {
  readonly calls: FsCall[] = [];
  readonly fs: StoreFs;
  /** Resolves when a call was interrupted and every call under way has ended. */
  readonly crashed: Promise<void>;
  readonly #fate: (call: FsCall) => Fate;
  readonly #open = new Set<StoreFile>();
  #underWay = 0;
  #isCrashed = false;
  #reportCrash: () => void = () => {};

  constructor(fate: (call: FsCall) => Fate = () => undefined) {
    this.#fate = fate;
    this.crashed = new Promise((resolve) => {
      this.#reportCrash = resolve;
    });
    this.fs = this.#watchedFs();
  }

  /** Closes what a crash left open. */
  async close(): Promise<void> {
    await Promise.all([...this.#open].map((file) => file.close()));
    this.#open.clear();
  }

  async #call<T>(
    name: string,
    path: string | Buffer,
    work: () => Promise<T>,
    half?: () => Promise<T>,
  ): Promise<T> {
    const call = { index: this.calls.length, name, path: path.toString() };
    this.calls.push(call);
    const fate = this.#isCrashed ? 'crash' : this.#fate(call);
    if (fate instanceof Error) throw fate;
    if (fate === 'crash') {
      const first = !this.#isCrashed;
      this.#isCrashed = true;
      if (first && half !== undefined) await this.#track(half);
      this.#settle();
      return new Promise<never>(() => {});
    }
    return this.#track(work);
  }

  async #track<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay++;
    try {
      return await work();
    } finally {
      this.#underWay--;
      this.#settle();
    }
  }

  #settle(): void {
    if (this.#isCrashed && this.#underWay === 0) this.#reportCrash();
  }

  #watchedFs(): StoreFs {
    return {
      open: async (path, flags, mode) => {
        const file = await this.#call('open', path, async () => {
          const opened = await realFs.open(path, flags, mode);
          this.#open.add(opened);
          return opened;
        });
        return this.#watchedFile(file, path);
      },
      mkdir: (path, options) => this.#call('mkdir', path, () => realFs.mkdir(path, options)),
      readdir: (path, options) => this.#call('readdir', path, () => realFs.readdir(path, options)),
      lstat: (path, options) => this.#call('lstat', path, () => realFs.lstat(path, options)),
      utimes: (path, atime, mtime) => this.#call('utimes', path, () => realFs.utimes(path, atime, mtime)),
      readlink: (path, options) => this.#call('readlink', path, () => realFs.readlink(path, options)),
      chmod: (path, mode) => this.#call('chmod', path, () => realFs.chmod(path, mode)),
      rename: (from, to) => this.#call('rename', from, () => realFs.rename(from, to)),
      rm: (path, options) => this.#call('rm', path, () => realFs.rm(path, options)),
      statfs: (path) => this.#call('statfs', path, () => realFs.statfs(path)),
    };
  }

  #watchedFile(file: StoreFile, path: string | Buffer): StoreFile {
    return {
      stat: () => this.#call('file.stat', path, () => file.stat()),
      read: (...args) => this.#call('file.read', path, () => file.read(...args)),
      readFile: () => this.#call('file.readFile', path, () => file.readFile()),
      writeFile: (text) =>
        this.#call(
          'file.writeFile',
          path,
          () => file.writeFile(text),
          () => file.writeFile(text.slice(0, text.length / 2)),
        ),
      sync: () => this.#call('file.sync', path, () => file.sync()),
      close: async () => {
        // Always closed: the test process goes on after the simulated crash.
        this.#open.delete(file);
        await file.close();
        await this.#call('file.close', path, async () => {});
      },
    };
  }
}

export function errno(code: string): Error {
  return Object.assign(new Error(`${code}: made up by a test`), { code });
}
