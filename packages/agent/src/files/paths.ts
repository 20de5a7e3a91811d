/**
 * Resolves the paths that callers send.
 *
 * In an isolated sandbox the kernel decides what a user may reach, and paths are used as they are. In a sandbox without
 * isolation (`--root`) the file API stays inside one directory, which is the home of the sandbox's user: the agent
 * follows links itself, step by step, and refuses a step that leads out of the directory.
 */
import { lstat, readlink, realpath } from 'node:fs/promises';
import { basename, dirname, join, normalize, resolve, sep } from 'node:path';
import { TorporError } from '@torpor/protocol';
import type { User } from '../identity/users.ts';
import { errnoOf, toFileError } from './file-errors.ts';
import type { Owner } from './ownership.ts';

/** The user whose home paths start from, and the directory that an empty path means. */
export interface FileContext {
  readonly user: User;
  /** Owner of the files that the call creates; undefined for the agent's own user. */
  readonly owner: Owner | undefined;
  readonly workdir: string | undefined;
}

export interface ResolvedPath {
  /** The path to show to the caller. */
  readonly path: string;
  /** The path to pass to system calls. */
  readonly real: string;
}

/** The home directory that E2B's clients assume. */
const DEFAULT_HOME = '/home/user';

const MAX_LINKS = 40;

export class Paths {
  /** The root with all links resolved; undefined in an isolated sandbox. */
  readonly root: string | undefined;

  constructor(root: string | undefined) {
    this.root = root;
  }

  /** Expands `~`, relative and empty paths, without looking at the filesystem. */
  absolute(path: string, { user, workdir }: Pick<FileContext, 'user' | 'workdir'>): string {
    if (path.includes('\0')) throw new TorporError('invalid_request', 'A path cannot contain a zero byte.');
    if (path === '') return resolve(workdir ?? user.home);
    if (path === '~' || path.startsWith('~/')) return resolve(user.home, `.${path.slice(1)}`);
    if (path.startsWith('~')) {
      throw new TorporError('invalid_request', `${path}: "~" works only for the home of the calling user.`);
    }
    const full = resolve(user.home, path);
    if (this.root === undefined || !isInside(full, DEFAULT_HOME) || isInside(full, this.root)) return full;
    return join(this.root, full.slice(DEFAULT_HOME.length));
  }

  /** The entry itself. A link is not followed, so that it can be described, moved or removed. */
  async entry(path: string, context: FileContext): Promise<ResolvedPath> {
    const full = this.absolute(path, context);
    return { path: full, real: this.root === undefined ? full : await this.#resolveInsideRoot(full) };
  }

  /** The target of the path with all links followed, whether it exists or not. */
  async target(path: string, context: FileContext): Promise<ResolvedPath> {
    const full = this.absolute(path, context);
    let real = full;
    for (let links = 0; links < MAX_LINKS; links += 1) {
      if (this.root !== undefined) real = await this.#resolveInsideRoot(real);
      const link = await readlink(real).catch(ignoreMissingLink);
      if (link === undefined) return { path: full, real };
      real = resolve(await realpath(dirname(real)), link);
    }
    throw new TorporError('invalid_request', `${full} has too many links.`);
  }

  /** Whether an already resolved path may be used. */
  allows(real: string): boolean {
    return this.root === undefined || isInside(real, this.root);
  }

  /** Resolves all links in the directories of the path. Throws unless the result is inside the root. */
  async #resolveInsideRoot(full: string): Promise<string> {
    const real = this.root === full ? full : join(await this.#realDirectory(dirname(full)), basename(full));
    if (!this.allows(real)) throw new TorporError('forbidden', `${full} is outside the sandbox's directory.`);
    return real;
  }

  /** Resolves the part of the directory that exists, and appends the rest as written. */
  async #realDirectory(directory: string): Promise<string> {
    try {
      return await realpath(directory);
    } catch (thrown) {
      if (errnoOf(thrown) !== 'ENOENT' || directory === '/') throw toFileError(thrown, directory);
    }
    const isLink = await lstat(directory).then(
      (found) => found.isSymbolicLink(),
      () => false,
    );
    if (isLink)
      throw new TorporError('forbidden', `${directory} is a link to something that does not exist.`);
    return join(await this.#realDirectory(dirname(directory)), basename(directory));
  }
}

export function isInside(path: string, directory: string): boolean {
  const parent = directory.endsWith(sep) ? directory : directory + sep;
  return normalize(path) === directory || normalize(path).startsWith(parent);
}

/** The path is no link, or does not exist: there is nothing to follow. Other errors show when the path is used. */
function ignoreMissingLink(): undefined {
  return undefined;
}
