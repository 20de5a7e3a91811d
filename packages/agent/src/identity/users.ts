/** Who a call acts for: the sandbox's users, as /etc/passwd knows them, within what the agent may do. */
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

/** Refused as a bad token is, which is what clients of this wire expect, and marked so that ours can tell. */
export class UnknownUser extends TorporError {
  constructor(message: string) {
    super('unauthenticated', message);
  }
}

export interface UsersOptions {
  /** The user the agent itself runs as. */
  readonly own: User;
  /** Every name then means the agent's own user: there is no other in a sandbox without isolation. */
  readonly onlyOwn: boolean;
  readonly passwdFile?: string;
}

export class Users {
  readonly own: User;
  readonly #options: UsersOptions;

  constructor(options: UsersOptions) {
    this.own = options.own;
    this.#options = options;
  }

  /** `name` is what the caller asked for, `fallback` what the server set for callers that do not ask. */
  async resolve(name: string | undefined, fallback: string | undefined): Promise<User> {
    const wanted = name || fallback;
    if (!wanted || wanted === this.own.name) return this.own;
    if (this.#options.onlyOwn) {
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

  /** Whether acting for this user needs other rights than the agent's own. */
  isOther(user: User): boolean {
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

/** The agent's own user, who in a bare root need not be in any file. */
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
