/** The users that calls may act for: those in /etc/passwd, as far as the agent's own rights allow. */
import { readFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { TorporError } from '@torpor/protocol';

export interface User {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
  readonly shell: string;
}

/** Has the code of a bad token, which E2B's clients expect. A header marks it, so that Torpor's client can tell. */
export class UnknownUser extends TorporError {
  constructor(message: string) {
    super('unauthenticated', message);
  }
}

export interface UsersOptions {
  /** The user the agent itself runs as. */
  readonly own: User;
  /** There is no other user in a sandbox without isolation; the default user then means the agent's own user. */
  readonly isSingleUser: boolean;
  readonly passwdFile?: string;
}

export class Users {
  readonly own: User;
  readonly #options: UsersOptions;

  constructor(options: UsersOptions) {
    this.own = options.own;
    this.#options = options;
  }

  /** `name` is the user that the caller names, `fallback` the default user that the server has set. */
  async resolve(name: string | undefined, fallback: string | undefined): Promise<User> {
    const wanted = name || fallback;
    if (!wanted || wanted === this.own.name) return this.own;
    if (this.#options.isSingleUser) {
      if (wanted === fallback) return this.own;
      throw new TorporError('forbidden', `This sandbox has only one user, ${this.own.name}.`);
    }
    const found = await this.#lookUp(wanted);
    if (found === undefined) throw new UnknownUser(`There is no user ${wanted} here.`);
    if (found.uid !== this.own.uid && this.own.uid !== 0) {
      throw new TorporError('forbidden', `The agent runs as ${this.own.name} and cannot act for ${wanted}.`);
    }
    return found;
  }

  /** Whether the user is not the agent's own. */
  isOtherThanAgent(user: User): boolean {
    return user.uid !== this.own.uid;
  }

  async #lookUp(name: string): Promise<User | undefined> {
    const text = await readFile(this.#options.passwdFile ?? '/etc/passwd', 'utf8').catch(() => '');
    return parsePasswd(text).find((user) => user.name === name);
  }
}

export function parsePasswd(text: string): User[] {
  return text.split('\n').flatMap((line) => {
    const [name, , uid, gid, , home, shell] = line.split(':');
    if (!name || !uid || !gid || line.startsWith('#')) return [];
    return [{ name, uid: Number(uid), gid: Number(gid), home: home || '/', shell: shell || '/bin/sh' }];
  });
}

/** The agent's own user. In a minimal root filesystem, no account file may list it. */
export function ownUser(home?: string): User {
  try {
    const { username, uid, gid, homedir, shell } = userInfo();
    return { name: username, uid, gid, home: home ?? homedir, shell: shell ?? '/bin/sh' };
  } catch {
    const uid = process.getuid?.() ?? 0;
    const name = uid === 0 ? 'root' : String(uid);
    return {
      name,
      uid,
      gid: process.getgid?.() ?? 0,
      home: home ?? process.env['HOME'] ?? '/',
      shell: '/bin/sh',
    };
  }
}

/** The user that clients name in `Authorization: Basic`, with an empty password. */
export function userOfAuthorization(header: string | null | undefined): string | undefined {
  const [, encoded] = /^Basic\s+(.*)$/i.exec(header ?? '') ?? [];
  if (encoded === undefined) return undefined;
  const name = Buffer.from(encoded, 'base64').toString('utf8').split(':')[0];
  if (!name) throw new UnknownUser('The Authorization header names no user.');
  return name;
}
