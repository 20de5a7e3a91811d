/** Looks up user and group names by number, for the owners of files. Rereads the account files when they change. */
import { readFile, stat } from 'node:fs/promises';

export class AccountNames {
  readonly #users: NameFile;
  readonly #groups: NameFile;

  constructor(files: { passwd?: string; group?: string } = {}) {
    this.#users = new NameFile(files.passwd ?? '/etc/passwd');
    this.#groups = new NameFile(files.group ?? '/etc/group');
  }

  /** Returns the number as text when no user has it. */
  async owner(uid: number): Promise<string> {
    return (await this.#users.names()).get(uid) ?? String(uid);
  }

  async group(gid: number): Promise<string> {
    return (await this.#groups.names()).get(gid) ?? String(gid);
  }
}

const CHECK_EVERY_MS = 1000;

class NameFile {
  readonly #path: string;
  #version = '';
  #checkedAt = Number.NEGATIVE_INFINITY;
  #known: ReadonlyMap<number, string> = new Map();

  constructor(path: string) {
    this.#path = path;
  }

  async names(): Promise<ReadonlyMap<number, string>> {
    // A directory listing calls this once per entry, so the file is checked at most once per interval.
    if (performance.now() - this.#checkedAt < CHECK_EVERY_MS) return this.#known;
    this.#checkedAt = performance.now();
    const version = await stat(this.#path).then(
      (found) => `${found.ino}:${found.mtimeMs}:${found.size}`,
      () => '',
    );
    if (version === this.#version) return this.#known;
    const text = await readFile(this.#path, 'utf8').catch(() => '');
    this.#known = new Map(
      text.split('\n').flatMap((line) => {
        const [name, , id] = line.split(':');
        return name && id ? [[Number(id), name] as const] : [];
      }),
    );
    this.#version = version;
    return this.#known;
  }
}
