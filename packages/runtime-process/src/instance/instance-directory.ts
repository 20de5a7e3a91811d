/**
 * The directory of an instance. It contains all state of the instance, so that a restarted server finds everything.
 *
 * ```
 * <root>/<sandbox>/<generation>/instance.json   the record: user, ports, agent, token
 *                               home/           the workspace; exists only when it is complete
 *                               run/agent.sock  the agent's socket; only the server may replace it
 *                               agent.log       the output of the agent
 *                               baseline.json   the files that are unchanged since a sealed checkpoint
 *                               captured.json   the same for a capture that is perhaps not sealed
 *                               frozen.json     the processes that were stopped before the freeze
 * <root>/.removing/…                            directories that are being deleted
 * ```
 */
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readdir, rename, rmdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { errnoOf, isMissing, removeTree } from '@torpor/host';
import { isId, type SandboxId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';

export interface InstancePaths {
  readonly directory: string;
  readonly record: string;
  readonly home: string;
  /** The workspace while it is being created. */
  readonly unfinishedHome: string;
  readonly run: string;
  readonly socket: string;
  readonly log: string;
  readonly baseline: string;
  readonly captured: string;
  readonly frozen: string;
}

/** The longest path of a Unix socket on macOS. Linux accepts four bytes more. */
const MAX_SOCKET_PATH_LENGTH = 103;

export class InstanceDirectory {
  readonly root: string;
  /** 0711 lets the user of an instance reach its own directory without listing the others. */
  readonly #mode: number;

  constructor(root: string, options: { readonly shared: boolean }) {
    this.root = root;
    this.#mode = options.shared ? 0o711 : 0o700;
  }

  /** Creates the root and completes interrupted removals. No other call may run at the same time. */
  async open(): Promise<void> {
    const longest = this.paths({ sandboxId: `sbx_${'x'.repeat(20)}`, generation: 999_999 }).socket;
    if (longest.length > MAX_SOCKET_PATH_LENGTH) {
      throw new TorporError(
        'invalid_request',
        `The path ${this.root} is too long for the sockets of sandboxes.`,
        {
          hint: `Choose a data directory whose path is ${longest.length - MAX_SOCKET_PATH_LENGTH} characters shorter.`,
        },
      );
    }
    await mapWriteErrors(this.root, async () => {
      await mkdir(this.root, { recursive: true });
      await chmod(this.root, this.#mode);
      await mkdir(this.#removing, { recursive: true, mode: 0o700 });
      for (const name of await readdir(this.#removing)) await removeTree(join(this.#removing, name));
      for (const name of await readdir(this.root)) if (isId('sbx', name)) await this.removeIfEmpty(name);
    });
  }

  paths({ sandboxId, generation }: Instance): InstancePaths {
    const directory = join(this.root, sandboxId, String(generation));
    const at = (name: string) => join(directory, name);
    return {
      directory,
      record: at('instance.json'),
      home: at('home'),
      unfinishedHome: at('home.unfinished'),
      run: at('run'),
      socket: join(at('run'), 'agent.sock'),
      log: at('agent.log'),
      baseline: at('baseline.json'),
      captured: at('captured.json'),
      frozen: at('frozen.json'),
    };
  }

  async make(instance: Instance): Promise<InstancePaths> {
    const paths = this.paths(instance);
    await mapWriteErrors(paths.directory, async () => {
      await mkdir(dirname(paths.directory), { recursive: true });
      await mkdir(paths.directory);
      for (const path of [dirname(paths.directory), paths.directory]) await chmod(path, this.#mode);
    }).catch((thrown: unknown) => {
      if (errnoOf(thrown) !== 'EEXIST') throw thrown;
      throw new TorporError(
        'conflict',
        `Generation ${instance.generation} of ${instance.sandboxId} exists already.`,
      );
    });
    return paths;
  }

  /** Whether the path exists. Throws when the root itself cannot be read, because then nothing is proved. */
  async has(path: string): Promise<boolean> {
    try {
      await stat(path);
      return true;
    } catch (thrown) {
      if (!isMissing(thrown)) throw thrown;
      await stat(this.root);
      return false;
    }
  }

  /** In ascending order. */
  async generations(sandboxId: SandboxId): Promise<number[]> {
    const names = await readdir(join(this.root, sandboxId)).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    });
    return names
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  }

  async *list(): AsyncGenerator<Instance> {
    for (const name of await readdir(this.root)) {
      if (!isId('sbx', name)) continue;
      for (const generation of await this.generations(name)) yield { sandboxId: name, generation };
    }
  }

  /** Moves the directory away in one step, so that the instance is gone at once, and then deletes it. */
  async remove(instance: Instance): Promise<void> {
    const { directory } = this.paths(instance);
    const moved = join(this.#removing, `${instance.sandboxId}.${instance.generation}.${randomUUID()}`);
    try {
      await rename(directory, moved);
    } catch (thrown) {
      if (isMissing(thrown)) return;
      throw thrown;
    }
    await removeTree(moved);
  }

  /** Removes the directory of a sandbox unless it contains another generation. */
  async removeIfEmpty(sandboxId: SandboxId): Promise<void> {
    await rmdir(join(this.root, sandboxId)).catch((thrown: unknown) => {
      if (!isMissing(thrown) && errnoOf(thrown) !== 'ENOTEMPTY') throw thrown;
    });
  }

  get #removing(): string {
    return join(this.root, '.removing');
  }
}
