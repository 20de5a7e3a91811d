/**
 * Where `sudo` comes in: one socket for each user who may, that only this user can open. Node cannot ask a
 * socket who is at the other end, but the kernel lets nobody else connect, so the socket is the proof.
 */
import { once } from 'node:events';
import type { FSWatcher } from 'node:fs';
import { chmod, chown, mkdir, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import type { User } from '../identity/users.ts';
import type { Accounts } from './accounts.ts';
import { socketOf } from './socket-path.ts';

export interface SudoDoorOptions {
  /** On a file system of memory: a socket in it says nothing to another start. */
  readonly directory: string;
  readonly accounts: Accounts;
  /** Settles when the call is over. */
  readonly serve: (socket: Socket, caller: User) => Promise<void>;
}

export class SudoDoor {
  readonly #servers = new Map<number, Server>();
  readonly #options: SudoDoorOptions;
  #renewing: Promise<void> = Promise.resolve();
  #watcher: FSWatcher | undefined;

  constructor(options: SudoDoorOptions) {
    this.#options = options;
  }

  /** Lets in who may come in now, and nobody else. */
  renew(): Promise<void> {
    this.#renewing = this.#renewing.then(() => this.#admit()).catch(() => {});
    return this.#renewing;
  }

  close(): void {
    this.#watcher?.close();
    for (const server of this.#servers.values()) server.close();
    this.#servers.clear();
  }

  async #admit(): Promise<void> {
    this.#watcher ??= this.#options.accounts.watch(() => void this.renew());
    const allowed = new Map((await this.#options.accounts.allowed()).map((user) => [user.uid, user]));
    for (const [uid, server] of this.#servers) {
      if (allowed.has(uid)) continue;
      server.close();
      this.#servers.delete(uid);
    }
    await mkdir(this.#options.directory, { recursive: true, mode: 0o755 });
    for (const user of allowed.values()) if (!this.#servers.has(user.uid)) await this.#open(user);
  }

  async #open(user: User): Promise<void> {
    const path = socketOf(this.#options.directory, user.uid);
    await rm(path, { force: true });
    const server = createServer((socket) => {
      // A command may have changed who is in the group, and not every system tells.
      void this.#options.serve(socket, user).then(() => this.renew());
    });
    server.on('error', () => {});
    // Until it is given away it is root's, and root may come in anyway.
    server.listen(path);
    await once(server, 'listening');
    await chown(path, user.uid, user.gid);
    await chmod(path, 0o600);
    this.#servers.set(user.uid, server);
  }
}
