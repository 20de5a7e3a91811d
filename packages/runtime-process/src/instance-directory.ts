/**
 * Where an instance lives on disk. What is there is the whole truth about it: a server that was restarted
 * finds everything again.
 *
 * ```
 * <root>/<sandbox>/<generation>/instance.json   who it is: user, ports, agent, token
 *                               home/           the workspace, whole from the moment it is there
 *                               run/agent.sock  the agent's door; the server's alone as soon as it is made
 *                               agent.log       what the agent said
 *                               baseline.json   which files are still those of a sealed checkpoint
 *                               captured.json   the same for a capture that is not known to be sealed yet
 *                               frozen.json     who had been stopped already when it was frozen
 * <root>/.removing/…                            what is being deleted: out of the way in one step
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
  /** The workspace while it is being made. */
  readonly unfinishedHome: string;
  readonly run: string;
  readonly socket: string;
  readonly log: string;
  readonly baseline: string;
  readonly captured: string;
  readonly frozen: string;
}

/** The kernel takes no longer path for a socket; macOS takes four less than Linux. */
const LONGEST_SOCKET_PATH = 103;

export class InstanceDirectory {
  readonly root: string;
  /** Others may pass through to the directories that are theirs, and see nothing on the way. */
  readonly #mode: number;

  constructor(root: string, options: { readonly shared: boolean }) {
    this.root = root;
    this.#mode = options.shared ? 0o711 : 0o700;
  }

  /** Makes the root, and finishes removals that were cut short; nothing else may be under way. */
  async open(): Promise<void> {
    const longest = this.paths({ sandboxId: `sbx_${'x'.repeat(20)}`, generation: 999_999 }).socket;
    if (longest.length > LONGEST_SOCKET_PATH) {
      throw new TorporError(
        'invalid_request',
        `The path ${this.root} is too long for the sockets of sandboxes.`,
        {
          hint: `Choose a data directory whose path is ${longest.length - LONGEST_SOCKET_PATH} characters shorter.`,
        },
      );
    }
    await mapWriteErrors(this.root, async () => {
      await mkdir(this.root, { recursive: true });
      await chmod(this.root, this.#mode);
      await mkdir(this.#removing, { recursive: true, mode: 0o700 });
      for (const name of await readdir(this.#removing)) await removeTree(join(this.#removing, name));
      for (const name of await readdir(this.root)) if (isId('sbx', name)) await this.forget(name);
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
        `Generation ${instance.generation} of ${instance.sandboxId} is there already.`,
      );
    });
    return paths;
  }

  /** Whether it is there. That nothing is there proves something only while the root itself can be read. */
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

  /** The oldest first. */
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

  /** Gone in one step as far as anybody can see, then piece by piece. */
  async remove(instance: Instance): Promise<void> {
    const { directory } = this.paths(instance);
    const away = join(this.#removing, `${instance.sandboxId}.${instance.generation}.${randomUUID()}`);
    try {
      await rename(directory, away);
    } catch (thrown) {
      if (isMissing(thrown)) return;
      throw thrown;
    }
    await removeTree(away);
  }

  /** Another generation may be in it. */
  async forget(sandboxId: SandboxId): Promise<void> {
    await rmdir(join(this.root, sandboxId)).catch((thrown: unknown) => {
      if (!isMissing(thrown) && errnoOf(thrown) !== 'ENOTEMPTY') throw thrown;
    });
  }

  get #removing(): string {
    return join(this.root, '.removing');
  }
}
