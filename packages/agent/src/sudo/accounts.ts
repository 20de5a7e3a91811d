/** The accounts for `sudo`: members of the group `sudo` may run commands as any user. */
import { type FSWatcher, watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parsePasswd, type User } from '../identity/users.ts';
import type { Command } from './arguments.ts';

const GROUP = 'sudo';

const ROOT: User = { name: 'root', uid: 0, gid: 0, home: '/root', shell: '/bin/sh' };

export class Accounts {
  readonly #etc: string;

  constructor(etc = '/etc') {
    this.#etc = etc;
  }

  /** Root is always allowed: scripts call `sudo` without checking whether they run as root. */
  async allowed(): Promise<User[]> {
    const [users, groups] = await Promise.all([this.#users(), this.#groups()]);
    const sudoers = groups.filter((group) => group.name === GROUP);
    const isAllowed = (user: User) =>
      sudoers.some(({ gid, members }) => gid === user.gid || members.includes(user.name));
    const others = users.filter((user) => user.uid !== 0 && isAllowed(user));
    return [rootOf(users), ...others];
  }

  /** The user to run the command as. Throws an error with a message for the caller. */
  async target({ user, group }: Pick<Command, 'user' | 'group'>): Promise<User> {
    const users = await this.#users();
    const found = user.startsWith('#') ? numbered(user, users) : named(user, users);
    if (found === undefined) throw new Error(`unknown user ${user}`);
    if (group === undefined) return found;
    const gid = group.startsWith('#')
      ? numberOf(group)
      : (await this.#groups()).find((each) => each.name === group)?.gid;
    if (gid === undefined) throw new Error(`unknown group ${group}`);
    return { ...found, gid };
  }

  /** Calls `changed` when the account files may have changed; undefined where the system cannot watch them. */
  watch(changed: () => void): FSWatcher | undefined {
    try {
      const watcher = watch(this.#etc, { persistent: false }, (_, name) => {
        if (name === 'group' || name === 'passwd') changed();
      });
      return watcher.on('error', () => watcher.close());
    } catch {
      return undefined;
    }
  }

  async #users(): Promise<User[]> {
    return parsePasswd(await readFile(join(this.#etc, 'passwd'), 'utf8').catch(() => ''));
  }

  async #groups(): Promise<Group[]> {
    return parseGroups(await readFile(join(this.#etc, 'group'), 'utf8').catch(() => ''));
  }
}

function rootOf(users: readonly User[]): User {
  return users.find((user) => user.uid === 0) ?? ROOT;
}

function named(name: string, users: readonly User[]): User | undefined {
  return users.find((user) => user.name === name) ?? (name === ROOT.name ? ROOT : undefined);
}

/** A user id need not be in /etc/passwd. */
function numbered(text: string, users: readonly User[]): User | undefined {
  const uid = numberOf(text);
  if (uid === undefined) return undefined;
  const found = users.find((user) => user.uid === uid) ?? (uid === 0 ? ROOT : undefined);
  return found ?? { name: text, uid, gid: uid, home: '/', shell: '/bin/sh' };
}

function numberOf(text: string): number | undefined {
  const number = /^#\d{1,10}$/.test(text) ? Number(text.slice(1)) : Number.NaN;
  return number < 2 ** 32 - 1 ? number : undefined;
}

interface Group {
  readonly name: string;
  readonly gid: number;
  readonly members: readonly string[];
}

function parseGroups(text: string): Group[] {
  return text.split('\n').flatMap((line) => {
    const [name, , gid, members] = line.split(':');
    if (!name || !gid || line.startsWith('#')) return [];
    return [{ name, gid: Number(gid), members: (members ?? '').split(',').filter(Boolean) }];
  });
}
