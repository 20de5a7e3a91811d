/** The files that COPY may take: a local directory without what .dockerignore leaves out. */
import { createReadStream } from 'node:fs';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { join, posix } from 'node:path';
import type { Source, TarItem } from '@torpor/build-steps';
import { isPattern, pathPattern } from './path-pattern.ts';

/** As in Linux: a path that leads through more links is taken for a circle. */
const MAX_LINKS = 40;

export class BuildContext {
  readonly #directory: string;
  readonly #ignored: (path: string) => boolean;

  private constructor(directory: string, ignored: (path: string) => boolean) {
    this.#directory = directory;
    this.#ignored = ignored;
  }

  /** `dockerfile` may have an ignore file of its own beside it. */
  static async open(directory: string, dockerfile: string): Promise<BuildContext> {
    const own = await readFile(`${dockerfile}.dockerignore`, 'utf8').catch(() => undefined);
    const text = own ?? (await readFile(join(directory, '.dockerignore'), 'utf8').catch(() => ''));
    return new BuildContext(directory, ignoreRules(text));
  }

  /** What a source of COPY stands for; several for a pattern, none when there is nothing. */
  async find(source: string): Promise<Source[]> {
    const path = posix.normalize(`/${source}`).slice(1).replace(/\/$/, '');
    const names = isPattern(path) ? await this.#matching(path) : [path];
    const found = await Promise.all(names.map((name) => this.#source(name)));
    return found.filter((source) => source !== undefined);
  }

  async #source(given: string): Promise<Source | undefined> {
    const name = await this.#followed(given);
    if (name === undefined) return undefined;
    const stats = await lstat(join(this.#directory, name)).catch(() => undefined);
    if (stats === undefined) return undefined;
    const isDirectory = stats.isDirectory();
    const isIgnored = [given, name].some((path) => path !== '' && this.#ignored(path));
    if (isIgnored && !isDirectory) return undefined;
    const items = isDirectory ? await this.#below(name, '') : [await this.#item(name, posix.basename(given))];
    // A later rule may take files of an ignored directory back.
    return isIgnored && items.length === 0 ? undefined : { isDirectory, items };
  }

  async #matching(pattern: string): Promise<string[]> {
    const found: string[] = [];
    const matches = pathPattern(pattern);
    const visit = async (directory: string, depth: number): Promise<void> => {
      for (const name of (await readdir(join(this.#directory, directory)).catch(() => [])).sort()) {
        const path = posix.join(directory, name);
        if (depth === 1 && matches(path)) found.push(path);
        else if (depth > 1) await visit(path, depth - 1);
      }
    };
    await visit('', pattern.split('/').length);
    return found;
  }

  /**
   * A source that is a link stands for its target, as for Docker. The context is the root: absolute targets begin there, and
   * nothing leads out of it.
   */
  async #followed(path: string): Promise<string | undefined> {
    const names = path.split('/');
    let reached = '/';
    for (let links = 0; names.length > 0; ) {
      const next = posix.join(reached, names.shift() ?? '');
      const target = await readlink(join(this.#directory, next)).catch(() => undefined);
      if (target === undefined) {
        reached = next;
        continue;
      }
      links += 1;
      if (links > MAX_LINKS) return undefined;
      names.unshift(...target.split('/'));
      if (posix.isAbsolute(target)) reached = '/';
    }
    return reached.slice(1);
  }

  /** Descends also into ignored directories: a later rule may take a file of theirs back. */
  async #below(directory: string, prefix: string): Promise<TarItem[]> {
    const items: TarItem[] = [];
    const entries = await readdir(join(this.#directory, directory), { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = posix.join(directory, entry.name);
      const isIgnored = this.#ignored(path);
      const inside = entry.isDirectory() ? await this.#below(path, posix.join(prefix, entry.name)) : [];
      if (isIgnored && inside.length === 0) continue;
      if (!entry.isDirectory() && !entry.isFile() && !entry.isSymbolicLink()) continue;
      items.push(await this.#item(path, posix.join(prefix, entry.name)), ...inside);
    }
    return items;
  }

  async #item(path: string, as: string): Promise<TarItem> {
    const place = join(this.#directory, path);
    const stats = await lstat(place);
    const common = { path: as, mode: stats.mode & 0o777, mtime: stats.mtimeMs / 1_000 };
    if (stats.isDirectory()) return { ...common, type: 'directory', size: 0 };
    if (stats.isSymbolicLink()) return { ...common, type: 'link', size: 0, target: await readlink(place) };
    return { ...common, type: 'file', size: stats.size, content: () => createReadStream(place) };
  }
}

/** The last rule that matches a path, or a directory above it, decides. */
function ignoreRules(text: string): (path: string) => boolean {
  const rules = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => ({
      isTakenBack: line.startsWith('!'),
      matches: pathPattern(
        posix
          .normalize(`/${line.replace(/^!\s*/, '')}`)
          .slice(1)
          .replace(/\/$/, ''),
      ),
    }));
  return (path) => {
    const names = path.split('/');
    const candidates = names.map((_, index) => names.slice(0, index + 1).join('/'));
    let isIgnored = false;
    for (const { isTakenBack, matches } of rules) if (candidates.some(matches)) isIgnored = !isTakenBack;
    return isIgnored;
  };
}
