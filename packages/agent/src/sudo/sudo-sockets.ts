/**
 * The sudo sockets: one for each user who may use `sudo`, which only that user can open. Node cannot ask a unix socket
 * for the peer's user, but the kernel lets no other user connect, so the socket identifies the caller.
 */
import { once } from 'node:events';
import type { FSWatcher } from 'node:fs';
import { chmod, chown, mkdir, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import type { User } from '../identity/users.ts';
import type { Accounts } from './accounts.ts';
import { socketOf } from './socket-path.ts';

export interface SudoSocketsOptions {
  /** In a tmpfs, so that no socket file of an earlier start is left in it. */
  readonly directory: string;
  readonly accounts: Accounts;
  /** Resolves when the call is over. */
  readonly serve: (socket: Socket, caller: User) => Promise<void>;
}

export class SudoSockets {
  readonly #servers = new Map<number, Server>();
  readonly #options: SudoSocketsOptions;
  #renewing: Promise<void> = Promise.resolve();
  #watcher: FSWatcher | undefined;

  constructor(options: SudoSocketsOptions) {
    this.#options = options;
  }

  /** Opens a socket for each user who is allowed now, and closes the others. */
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
      // The command may have changed the group's members, and not every system reports changes of files.
      void this.#options.serve(socket, user).then(() => this.renew());
    });
    server.on('error', () => {});
    // Before the chown only root can connect, and root is allowed anyway.
    server.listen(path);
    await once(server, 'listening');
    await chown(path, user.uid, user.gid);
    await chmod(path, 0o600);
    this.#servers.set(user.uid, server);
  }
}
