/**
 * From the paths that callers write to the places they mean.
 *
 * In an isolated sandbox the kernel decides what a user may reach, and paths pass as they are. In one
 * without isolation (`--root`) the file API is kept inside one directory, which stands for the home of
 * the sandbox's user: links are followed by us, step by step, and a step that leads out is refused.
 */
import { lstat, readlink, realpath } from 'node:fs/promises';
import { basename, dirname, join, normalize, resolve, sep } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { errnoOf, fileFailure } from '../agent-failures.ts';
import type { User } from '../identity/users.ts';
import type { Owner } from './ownership.ts';

/** Whose paths, and what an empty one means. */
export interface FileContext {
  readonly user: User;
  /** Whom to give what the call makes; undefined when the agent's own user is to have it. */
  readonly owner: Owner | undefined;
  readonly workdir: string | undefined;
}

export interface Place {
  /** As the caller knows it. */
  readonly path: string;
  /** What to hand to the system. */
  readonly real: string;
}

/** The home that clients of this wire have written into their programs. */
const USUAL_HOME = '/home/user';

const MAX_LINKS = 40;

export class Paths {
  /** With every link in it resolved; undefined in an isolated sandbox. */
  readonly root: string | undefined;

  constructor(root: string | undefined) {
    this.root = root;
  }

  /** Expands `~`, relative and empty paths. Says nothing yet about what is there. */
  absolute(path: string, { user, workdir }: Pick<FileContext, 'user' | 'workdir'>): string {
    if (path.includes('\0')) throw new TorporError('invalid_request', 'A path cannot contain a zero byte.');
    if (path === '') return resolve(workdir ?? user.home);
    if (path === '~' || path.startsWith('~/')) return resolve(user.home, `.${path.slice(1)}`);
    if (path.startsWith('~')) {
      throw new TorporError(
        'invalid_request',
        `${path}: only the home of the calling user has a short form.`,
      );
    }
    const full = resolve(user.home, path);
    if (this.root === undefined || !isInside(full, USUAL_HOME) || isInside(full, this.root)) return full;
    return join(this.root, full.slice(USUAL_HOME.length));
  }

  /** The entry itself: a link is not followed, so it can be looked at, moved or removed. */
  async entry(path: string, context: FileContext): Promise<Place> {
    const full = this.absolute(path, context);
    return { path: full, real: this.root === undefined ? full : await this.#confined(full) };
  }

  /** What the path leads to, whether it is there yet or not. */
  async target(path: string, context: FileContext): Promise<Place> {
    const full = this.absolute(path, context);
    let real = full;
    for (let links = 0; links < MAX_LINKS; links += 1) {
      if (this.root !== undefined) real = await this.#confined(real);
      const link = await readlink(real).catch(ignoreNoLink);
      if (link === undefined) return { path: full, real };
      real = resolve(await realpath(dirname(real)), link);
    }
    throw new TorporError('invalid_request', `${full} leads through too many links.`);
  }

  /** Whether a place that was resolved elsewhere may be looked at. */
  allows(real: string): boolean {
    return this.root === undefined || isInside(real, this.root);
  }

  /** The same place with all links on the way to it resolved, refused unless it is inside the root. */
  async #confined(full: string): Promise<string> {
    const real = this.root === full ? full : join(await this.#realDirectory(dirname(full)), basename(full));
    if (!this.allows(real)) throw new TorporError('forbidden', `${full} is outside the sandbox's directory.`);
    return real;
  }

  /** Directories that do not exist yet are taken as they are written, below the last one that does. */
  async #realDirectory(directory: string): Promise<string> {
    try {
      return await realpath(directory);
    } catch (thrown) {
      if (errnoOf(thrown) !== 'ENOENT' || directory === '/') throw fileFailure(thrown, directory);
    }
    const isLink = await lstat(directory).then(
      (found) => found.isSymbolicLink(),
      () => false,
    );
    if (isLink) throw new TorporError('forbidden', `${directory} is a link that leads nowhere.`);
    return join(await this.#realDirectory(dirname(directory)), basename(directory));
  }
}

export function isInside(path: string, directory: string): boolean {
  const parent = directory.endsWith(sep) ? directory : directory + sep;
  return normalize(path) === directory || normalize(path).startsWith(parent);
}

/** Not a link, or not there: either way there is nothing to follow. Other errors show when the place is used. */
function ignoreNoLink(): undefined {
  return undefined;
}
