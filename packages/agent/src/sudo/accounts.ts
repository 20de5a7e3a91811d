/** Who may use `sudo`, and as whom: the members of the group of that name, as anybody. */
import { type FSWatcher, watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Group, parseGroups } from '../groups.ts';
import { parsePasswd, type User } from '../identity/users.ts';
import type { Command } from './arguments.ts';

const GROUP = 'sudo';

const ROOT: User = { name: 'root', uid: 0, gid: 0, home: '/root', shell: '/bin/sh' };

export class Accounts {
  readonly #etc: string;

  constructor(etc = '/etc') {
    this.#etc = etc;
  }

  /** Root is always one of them: programs call `sudo` without looking who they are. */
  async allowed(): Promise<User[]> {
    const [users, groups] = await Promise.all([this.#users(), this.#groups()]);
    const sudoers = groups.filter((group) => group.name === GROUP);
    const isAllowed = (user: User) =>
      sudoers.some(({ gid, members }) => gid === user.gid || members.includes(user.name));
    const others = users.filter((user) => user.uid !== 0 && isAllowed(user));
    return [rootOf(users), ...others];
  }

  /** Throws a sentence for the caller. */
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

  /** Calls back when they may have changed; undefined where nobody can tell. */
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

/** A number need not have a name. */
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
