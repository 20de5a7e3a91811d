/**
 * A typed hand on the program `runsc`: containers made, stopped, saved, brought back and removed.
 *
 * It keeps nothing: what there is lies in runsc's root directory and in the processes. Calls for one
 * container must not overlap; those for different ones may. An abort kills the command, not the container:
 * after one, a container that was being made or restored may exist in any state, and is to be deleted; a
 * sentry that was writing an image goes on until it has written it, and `resume` waits for that.
 */
import { mkdir, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '@torpor/engine';
import type { Launcher, ProgramEnd, Running } from '@torpor/host';
import {
  type CommandOptions,
  hostMountPlace,
  hung,
  isMissing,
  type MountPlace,
  plainEnvironment,
  runCommand,
} from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, type RuntimeSettings } from '@torpor/runtime-shared';
import { withHiddenNetSysctls } from './hidden-net-sysctls.ts';
import { lastLogged, runscFailure, type Verb } from './runsc-failure.ts';
import {
  isAlive,
  KnownSentries,
  type RunscProcess,
  runscProcesses,
  type SentryMemory,
  sentryMemory,
} from './sentries.ts';
import { type RecordedState, StateDirectory } from './state-directory.ts';

export interface RunscOptions {
  readonly program: string;
  /** Where runsc keeps what it knows. One for each server. */
  readonly root: string;
  readonly network: 'sandbox' | 'none';
  /** Leaves control groups alone, where there are none or they are somebody else's. */
  readonly ignoreCgroups?: boolean;
  /** What sandboxes may do with the machine's Unix sockets in what is mounted into them. Nothing, unless said. */
  readonly hostUds?: 'open' | 'create' | 'all';
  /** Throws away what the first process prints: root of a guest could fill the machine's disk with it. */
  readonly discardOutput?: boolean;
  /** Has each process write down what it does, in files of its own. */
  readonly debug?: boolean;
  /** Where the roots of containers are mounted; in the mount namespace of this process unless said. */
  readonly mounts?: MountPlace;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  /** How long each command may take; for tests. */
  readonly boundMs?: number;
}

export interface Container {
  /** Never used twice: runsc forgets a living container when another is made under its name. */
  readonly id: string;
  /** The directory with config.json; no other container has the same. */
  readonly bundle: string;
  /** The directory for what runsc and the processes inside print; made when it is not there. */
  readonly logs: string;
  /** The network namespace that config.json names, as a path; null when there is none. */
  readonly netns: string | null;
  /** The runsc that makes and commands it; the usual one when it is not said. */
  readonly runsc?: ContainerProgram;
  /** Wraps the command that makes the sentry, so that it starts as a member of a control group. */
  readonly entering?: (command: readonly string[]) => readonly [string, ...string[]];
}

interface ContainerProgram {
  readonly program: string;
  /** Whether its network must be set up where /proc/sys/net is hidden. */
  readonly hideNetworkSettings: boolean;
  /** Whether a checkpoint takes its time for memory that was reserved and never touched. */
  readonly readsUntouchedMemory?: boolean;
}

/** What names a container to the program that commands it. */
export type NamedContainer = Pick<Container, 'id' | 'runsc'>;

export type ContainerState =
  | { readonly is: 'created' | 'running' | 'paused'; readonly pid: number }
  /** Its processes are dead, and what is left of it is to be deleted. */
  | { readonly is: 'gone' }
  | { readonly is: 'absent' };

/** A `restore` that has begun: it only has to be told which image. */
export interface PreparedRestore {
  /** False when it did not wait, and the container is of no use. */
  readonly isWaiting: boolean;
  /** Once. As `Runsc.restore`. */
  restore(image: string, signal: AbortSignal): Promise<void>;
}

/**
 * Holds the lock that every command of runsc takes first, until a line comes: what is started behind it has begun by
 * then, and goes on at once.
 */
const HOLD =
  'exec 9>>"$1" 3<&0; shift; flock 9 || exit; { read -r _ <&3; } & exec 3<&- 9>&-; exec "$@" </dev/null';

/** The memory image of a large sandbox takes seconds on a slow disk, a sentry that hangs takes for ever. */
const BOUND: Readonly<Record<Verb, keyof RuntimeSettings>> = {
  create: 'runscCreateMs',
  start: 'runscStartMs',
  run: 'runscRunMs',
  pause: 'runscPauseMs',
  resume: 'runscResumeMs',
  checkpoint: 'runscCheckpointMs',
  restore: 'runscRestoreMs',
  kill: 'runscKillMs',
  delete: 'runscDeleteMs',
  state: 'runscStateMs',
};

const LOOK_EVERY_MS = 5;
const GIB = 1024 ** 3;
/** What a runsc that reads untouched memory gets through in time. */
const MOST_RESERVED = 16 * GIB;

/** Inside a container's `logs`. */
export const LOG_FILES = {
  /** What runsc and the sentry log, as JSON objects. */
  runsc: 'runsc.log',
  /** Why a sentry has panicked. */
  panic: 'panic.log',
  /** What the first process prints, and what runsc prints until it has started. */
  output: 'output.log',
} as const;

export class Runsc {
  readonly #options: RunscOptions;
  readonly #clock: Clock;
  readonly #settings: RuntimeSettings;
  readonly #root: StateDirectory;
  readonly #sentries: KnownSentries;
  readonly #mounts: MountPlace;
  readonly #hiddenSysctlsLauncher: Launcher;
  /** By the container. */
  readonly #preparedRestore = new Map<string, Running>();

  constructor(options: RunscOptions) {
    this.#options = options;
    this.#mounts = options.mounts ?? hostMountPlace;
    this.#hiddenSysctlsLauncher = withHiddenNetSysctls(this.#mounts.entry);
    this.#clock = options.clock ?? systemClock;
    this.#settings = options.settings ?? DEFAULT_RUNTIME_SETTINGS;
    this.#root = new StateDirectory(options.root, this.#clock);
    this.#sentries = new KnownSentries(options.root);
  }

  #boundOf(verb: Verb): number {
    return this.#options.boundMs ?? this.#settings[BOUND[verb]];
  }

  /** Containers go on. */
  close(): void {
    this.#hiddenSysctlsLauncher.close();
  }

  /** Makes the sandbox with its root and mounts; nothing runs in it yet, and its network is not set up. */
  async create(container: Container, signal: AbortSignal): Promise<void> {
    await this.#refuseTwice(container.id);
    await this.#detached('create', container, [`--bundle=${container.bundle}`, container.id], signal);
  }

  /** Takes over the addresses and routes of the network namespace, and starts what was created. */
  async start(container: Container, signal: AbortSignal): Promise<void> {
    const { id } = container;
    await this.#attached('start', container, ['start', id], signal, {
      launcher: this.#launcherOf(container),
    });
  }

  /** `create` and `start` in one. */
  async run(container: Container, signal: AbortSignal): Promise<void> {
    await this.#refuseTwice(container.id);
    const args = ['--detach', `--bundle=${container.bundle}`, container.id];
    await this.#detached('run', container, args, signal);
  }

  /**
   * Brings a memory image back: into what `create` has made, or into a new container. The spec must have the
   * mounts that it had; their sources and the network may be others. The rest of it has no effect: processes
   * keep their arguments, environment and host name. When it fails the container is of no more use.
   */
  async restore(container: Container, image: string, signal: AbortSignal): Promise<void> {
    await requireImage(image);
    const args = ['--detach', `--image-path=${image}`, `--bundle=${container.bundle}`, container.id];
    await this.#detached('restore', container, args, signal);
  }

  /**
   * Begins to bring a memory image back, as far as that goes without knowing which: much of the time that runsc takes is
   * spent before it looks at anything. What `create` has made is stopped meanwhile, because even a sentry with nothing to
   * run looks every millisecond whether there is. Nothing else may be asked of the container.
   */
  async prepareRestore(container: Container): Promise<PreparedRestore> {
    const { id, bundle, logs } = container;
    await mkdir(logs, { recursive: true, mode: 0o700 });
    const image = join(bundle, 'image');
    const command = this.#command(
      container,
      ['restore', '--detach', `--image-path=${image}`, `--bundle=${bundle}`, id],
      logs,
    );
    const log = join(logs, LOG_FILES.runsc);
    const before = await sizeOf(log);
    const isNew = !(await this.#root.has(id));
    await this.#signalSentry(id, 'SIGSTOP');
    const held = ['sh', '-c', HOLD, 'sh', this.#root.lockOf(id), ...command] as const;
    const [program, ...args] = (isNew ? container.entering?.(held) : undefined) ?? held;
    const running = this.#launcherOf(container).start({
      program,
      args,
      env: plainEnvironment(),
      output: this.#outputOf(container),
      waits: true,
    });
    const preparedRestore = this.#preparedRestore;
    preparedRestore.set(id, running);
    const ended = running.ended.finally(() => preparedRestore.delete(id));
    ended.catch(() => {});
    return {
      get isWaiting() {
        return preparedRestore.has(id);
      },
      restore: async (from, signal) => {
        await requireImage(from);
        await symlink(from, image);
        await this.#signalSentry(id, 'SIGCONT');
        const boundMs = this.#boundOf('restore');
        const bound = AbortSignal.any([signal, AbortSignal.timeout(boundMs)]);
        const kill = () => running.kill();
        bound.addEventListener('abort', kill);
        if (bound.aborted) kill();
        else running.tell();
        const { status } = await ended.finally(() => bound.removeEventListener('abort', kill));
        signal.throwIfAborted();
        if (status === 0) return;
        // One that hangs says nothing against the image.
        if (status === null && bound.aborted)
          throw hung(this.#programOf(container), boundMs, { container: id });
        throw runscFailure(
          { verb: 'restore', container: id, status, said: await lastLogged(log, before) },
          null,
        );
      },
    };
  }

  /** Stops all processes inside; nothing to do when they are. A container that was never started breaks by it. */
  async pause(container: NamedContainer, signal: AbortSignal): Promise<void> {
    await this.#attached('pause', container, ['pause', container.id], signal, { already: 'paused' });
  }

  /** Lets them go on; nothing to do when they run. */
  async resume(container: NamedContainer, signal: AbortSignal): Promise<void> {
    await this.#attached('resume', container, ['resume', container.id], signal, { already: 'running' });
  }

  /** Writes the memory image into a directory that has none; the container goes on as it was, paused or running. */
  async checkpoint(container: NamedContainer, image: string, signal: AbortSignal): Promise<void> {
    if (container.runsc?.readsUntouchedMemory === true) await this.#refuseVast(container);
    const args = [
      'checkpoint',
      '--leave-running',
      '--compression=none',
      `--image-path=${image}`,
      container.id,
    ];
    await this.#attached('checkpoint', container, args, signal);
  }

  /**
   * What runsc has written down and the kernel confirms, without starting a program or asking the sentry.
   * Enough for whoever only wants to know whether it lives and whether it was paused.
   */
  async recordedState(id: string): Promise<ContainerState> {
    const remembered = await this.#root.read(id);
    return remembered === undefined ? { is: 'absent' } : this.#confirmed(id, remembered);
  }

  /** How much memory its processes use, which is about what an image of it takes; undefined when it cannot be seen. */
  async memoryBytes(id: string): Promise<number | undefined> {
    return (await this.#memoryOf(id))?.usedBytes;
  }

  async #memoryOf(id: string): Promise<SentryMemory | undefined> {
    const found = await this.recordedState(id);
    return 'pid' in found ? sentryMemory(found.pid) : undefined;
  }

  /** What is known about a container. Throws when its sentry does not answer: that is no proof of anything. */
  async state(container: NamedContainer, signal: AbortSignal): Promise<ContainerState> {
    const { id } = container;
    const command = this.#command(container, ['state', id]);
    const { status, stdout, stderr } = await this.#run('state', command, signal);
    if (status !== 0) {
      if (!(await this.#root.has(id))) return { is: 'absent' };
      throw runscFailure({ verb: 'state', container: id, status, said: stderr }, null);
    }
    return this.#confirmed(id, JSON.parse(stdout) as RecordedState);
  }

  /**
   * Every container there is anything of. Not by `runsc list`, which asks each sentry and waits for one that
   * hangs, and does not know those whose state file was lost.
   */
  async list(): Promise<string[]> {
    const files = await this.#root.containers();
    const processes = (await runscProcesses(this.#options.root)).flatMap(({ container }) => container ?? []);
    return [...new Set([...files, ...processes])].sort();
  }

  /** The processes of this machine behind a container: its sentry and its gofer. */
  async processes(container: Pick<Container, 'id' | 'bundle'>): Promise<number[]> {
    return (await this.#processesOf(container)).map(({ pid }) => pid);
  }

  /** Sends a signal to the first process inside. */
  async kill(container: NamedContainer, signalName: string, signal: AbortSignal): Promise<void> {
    await this.#attached('kill', container, ['kill', container.id, signalName], signal);
  }

  /**
   * Kills sentry and gofer without asking them, and resolves when they are dead and hold nothing any more:
   * no mount, no file, no namespace. What runsc remembers of the container is left for `delete`.
   */
  async end(container: Pick<Container, 'id' | 'bundle'>, signal: AbortSignal): Promise<void> {
    const bound = AbortSignal.any([
      signal,
      AbortSignal.timeout(this.#options.boundMs ?? this.#settings.sentryDeathMs),
    ]);
    const preparedRestore = this.#preparedRestore.get(container.id);
    preparedRestore?.kill();
    await preparedRestore?.ended.catch(() => {});
    for (let found = await this.#processesOf(container); found.length > 0; ) {
      for (const { pid } of found) sendSignal(pid, 'SIGKILL');
      await this.#clock.sleep(LOOK_EVERY_MS, bound).catch(() => {
        signal.throwIfAborted();
        throw new TorporError('timeout', `The sentry of ${container.id} does not die.`, {
          details: { pids: found.map(({ pid }) => pid) },
        });
      });
      const alive = await Promise.all(found.map(isAlive));
      const left = found.filter((_, index) => alive[index]);
      // One that was just being made may have come meanwhile.
      found = left.length > 0 ? left : await this.#processesOf(container);
    }
  }

  /**
   * Removes what runsc remembers of a container that has ended; absent is fine. All there is to delete where
   * control groups are left alone, and done at once.
   */
  async forget(id: string): Promise<void> {
    this.#sentries.forget(id);
    await this.#root.forget(id);
  }

  /**
   * Removes everything there is of a container, whatever state it is in; absent is fine. Not for a caller's
   * path: runsc waits until the machine's first process has collected the dead, which may take seconds.
   */
  async delete(container: NamedContainer & Pick<Container, 'bundle'>, signal: AbortSignal): Promise<void> {
    const { id } = container;
    await this.end(container, signal);
    await this.#attached('delete', container, ['delete', '--force', id], signal);
    // A container that was never finished leaves these behind.
    await this.forget(id);
  }

  /** A sentry counts as running for runsc until the machine's first process has collected it, or for ever. */
  async #confirmed(id: string, { status, pid }: RecordedState): Promise<ContainerState> {
    if (status === 'stopped' || !(await this.#sentries.isSentryOf(pid, id))) return { is: 'gone' };
    return { is: status === 'running' || status === 'paused' ? status : 'created', pid };
  }

  #command(
    container: NamedContainer,
    args: readonly string[],
    logs?: string,
  ): readonly [string, ...string[]] {
    const { root, network, ignoreCgroups, hostUds, debug } = this.#options;
    const program = this.#programOf(container);
    const flags = [`--root=${root}`, '--platform=systrap', '--overlay2=none', `--network=${network}`];
    // A connection that the sandbox has closed is remembered for a minute, and would keep an image from being
    // made. Those that a program still holds must be reset first: an image with one would break its program.
    if (network === 'sandbox') flags.push('--net-disconnect-ok');
    // For the filter of the OCI spec, where it has one.
    flags.push('--oci-seccomp');
    if (ignoreCgroups === true) flags.push('--ignore-cgroups');
    if (hostUds !== undefined) flags.push(`--host-uds=${hostUds}`);
    if (logs !== undefined) {
      flags.push(`--log=${join(logs, LOG_FILES.runsc)}`, '--log-format=json');
      flags.push(`--panic-log=${join(logs, LOG_FILES.panic)}`);
      if (debug === true) flags.push('--debug', `--debug-log=${join(logs, 'debug-%COMMAND%.log')}`);
    }
    return [program, ...flags, ...args];
  }

  /** For those commands that set up the network. */
  #launcherOf({ netns, runsc }: Container): Launcher {
    const hides = netns !== null && runsc?.hideNetworkSettings !== false;
    return hides ? this.#hiddenSysctlsLauncher : this.#mounts.launcher;
  }

  #programOf({ runsc }: NamedContainer): string {
    return runsc?.program ?? this.#options.program;
  }

  #run(
    verb: Verb,
    [program, ...args]: readonly [string, ...string[]],
    signal: AbortSignal,
    options: Pick<CommandOptions, 'output' | 'launcher'> = {},
  ): Promise<ProgramEnd> {
    return runCommand(program, args, {
      signal,
      boundMs: this.#boundOf(verb),
      launcher: this.#mounts.launcher,
      ...options,
    });
  }

  /** A command that leaves nothing running. One that fails because the container is so already has not failed. */
  async #attached(
    verb: Verb,
    container: NamedContainer,
    args: readonly string[],
    signal: AbortSignal,
    { already, ...place }: { already?: ContainerState['is'] } & Pick<CommandOptions, 'launcher'> = {},
  ): Promise<void> {
    const { status, stderr } = await this.#run(verb, this.#command(container, args), signal, place);
    if (status === 0) return;
    const state = await this.#stateAfter(container, signal);
    if (already !== undefined && state?.is === already) return;
    throw runscFailure({ verb, container: container.id, status, said: stderr }, state);
  }

  /** A command that leaves the sentry running, or gives it a file to write to. */
  async #detached(
    verb: 'create' | 'run' | 'restore',
    container: Container,
    args: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    const { id, logs } = container;
    await mkdir(logs, { recursive: true, mode: 0o700 });
    const log = join(logs, LOG_FILES.runsc);
    const before = await sizeOf(log);
    const output = this.#outputOf(container);
    const words = [verb, ...args];
    const command = this.#command(container, words, logs);
    // What `create` has made is a member already.
    const isNew = verb !== 'restore' || !(await this.#root.has(id));
    const wrapped = (isNew ? container.entering?.(command) : undefined) ?? command;
    const launcher = verb === 'create' ? this.#mounts.launcher : this.#launcherOf(container);
    const { status } = await this.#run(verb, wrapped, signal, { output, launcher });
    if (status === 0) return;
    const said = await lastLogged(log, before);
    throw runscFailure({ verb, container: id, status, said }, null);
  }

  #outputOf({ logs }: Container): string {
    return this.#options.discardOutput === true ? '/dev/null' : join(logs, LOG_FILES.output);
  }

  async #signalSentry(id: string, name: 'SIGSTOP' | 'SIGCONT'): Promise<void> {
    const found = await this.recordedState(id);
    if ('pid' in found) sendSignal(found.pid, name);
  }

  async #stateAfter(container: NamedContainer, signal: AbortSignal): Promise<ContainerState | null> {
    return this.state(container, signal).catch(() => {
      signal.throwIfAborted();
      return null;
    });
  }

  /** A checkpoint that has begun cannot be stopped, and the container stands still until it is written. */
  async #refuseVast(container: NamedContainer): Promise<void> {
    const { reservedBytes = 0 } = (await this.#memoryOf(container.id)) ?? {};
    if (reservedBytes <= MOST_RESERVED) return;
    const gib = (bytes: number) => Math.round(bytes / GIB);
    throw new TorporError(
      'capability_unsupported',
      `Its programs have reserved ${gib(reservedBytes)} GiB of memory; this runsc can capture ${gib(MOST_RESERVED)} GiB.`,
      {
        hint: 'Pause it with mode "files", or install a newer runsc, which captures only the memory that is in use.',
        details: { container: container.id, reservedBytes },
      },
    );
  }

  /** Asked for a name it has, runsc answers that it exists, forgets it, and leaves its processes running. */
  async #refuseTwice(id: string): Promise<void> {
    if (!(await this.#root.has(id))) return;
    throw new TorporError('conflict', `There is a container ${id} already.`, { details: { container: id } });
  }

  async #processesOf({ id, bundle }: Pick<Container, 'id' | 'bundle'>): Promise<RunscProcess[]> {
    const all = await runscProcesses(this.#options.root);
    return all.filter((one) => one.container === id || (one.container === null && one.bundle === bundle));
  }
}

function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

/** Absence is proved here, before runsc makes it one failure of many. */
async function requireImage(image: string): Promise<void> {
  const path = join(image, 'checkpoint.img');
  await stat(path).catch((cause: unknown) => {
    if (!isMissing(cause)) throw cause;
    throw new TorporError('checkpoint_missing', `There is no memory image in ${image}.`, {
      details: { path },
      cause,
    });
  });
}

function sendSignal(pid: number, name: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended by itself.
  }
}
