/**
 * Controls containers: creates, freezes, checkpoints, restores and removes them. Most calls start the program `runsc`. A
 * freeze and the calls for a warm instance start no program: they send signals to the sentry and call it on its control
 * socket.
 *
 * The state of containers lies in runsc's state directory and in the processes. This class keeps only what can be found
 * out again: which processes are sentries, and which restores and checkpoints wait. Calls for one
 * container must not overlap; calls for different containers may. An abort kills the command, not the container: a
 * container that was being created or restored may then exist in any state and must be deleted. A sentry that was
 * writing an image goes on until the image is written, and `thaw` waits for that.
 */
import { join } from 'node:path';
import { type Clock, systemClock } from '@torpor/engine';
import { type ProgramOptions, type ProgramResult, programTimedOut } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { SentryConnection, type SentryMethod, SentryRefusal } from './control-socket.ts';
import {
  PreparedCheckpoints,
  type PreparedRestore,
  PreparedRestores,
  requireImage,
} from './prepared-commands.ts';
import { LOG_FILES, RunscCli, type RunscOptions } from './runsc-cli.ts';
import type { Container, ContainerState, NamedContainer } from './runsc-container.ts';
import { lastLogged, logSize, type RunscCommand, runscFailure } from './runsc-failure.ts';
import {
  isAlive,
  KnownSentries,
  type RunscProcess,
  runscProcesses,
  type SentryMemory,
  sentryMemory,
} from './sentries.ts';
import { SharedScan } from './shared-scan.ts';
import { parseStateOutput, type RecordedState, StateDirectory } from './state-directory.ts';

const POLL_MS = 5;
const GIB = 1024 ** 3;
/** The most reserved memory that a runsc which also reads untouched memory can capture in time. */
const MAX_RESERVED_BYTES = 16 * GIB;

export class Runsc {
  readonly #clock: Clock;
  readonly #cli: RunscCli;
  readonly #states: StateDirectory;
  readonly #sentries: KnownSentries;
  readonly #processes: SharedScan<RunscProcess[]>;
  readonly #preparedRestores: PreparedRestores;
  readonly #preparedCheckpoints: PreparedCheckpoints;

  constructor(options: RunscOptions) {
    this.#clock = options.clock ?? systemClock;
    this.#cli = new RunscCli(options);
    this.#states = new StateDirectory(options.root, this.#clock);
    this.#sentries = new KnownSentries(options.root);
    this.#processes = new SharedScan(() => runscProcesses(options.root));
    this.#preparedRestores = new PreparedRestores(this.#cli);
    this.#preparedCheckpoints = new PreparedCheckpoints(this.#cli);
  }

  /** Containers go on running. */
  close(): void {
    this.#cli.close();
  }

  /** Creates the sandbox with its root and mounts. No process runs in it yet, and its network is not set up. */
  async create(container: Container, signal: AbortSignal): Promise<void> {
    await this.#refuseExisting(container.id);
    await this.#runDetached('create', container, [`--bundle=${container.bundle}`, container.id], signal);
  }

  /** Takes over the addresses and routes of the network namespace, and starts a created container. */
  async start(container: Container, signal: AbortSignal): Promise<void> {
    await this.#runAttached('start', container, ['start', container.id], signal, {
      launcher: this.#cli.networkLauncher(container),
    });
  }

  /** `create` and `start` in one command. */
  async run(container: Container, signal: AbortSignal): Promise<void> {
    await this.#refuseExisting(container.id);
    const args = ['--detach', `--bundle=${container.bundle}`, container.id];
    await this.#runDetached('run', container, args, signal);
  }

  /**
   * Restores a memory image, into a created container or into a new one. The spec must have the mounts of the captured
   * container; their sources and the network may differ. The rest of the spec has no effect: processes keep their
   * arguments, environment and host name. After a failure the container cannot be used.
   */
  async restore(container: Container, image: string, signal: AbortSignal): Promise<void> {
    await requireImage(image);
    const args = ['--detach', `--image-path=${image}`, `--bundle=${container.bundle}`, container.id];
    await this.#runDetached('restore', container, args, signal);
  }

  /**
   * Begins a restore before its image is known. A created container is stopped meanwhile, because even an idle sentry
   * looks for work every millisecond. No other command may be run for the container.
   */
  async prepareRestore(container: Container): Promise<PreparedRestore> {
    const { id } = container;
    const isNew = !(await this.#states.has(id));
    await this.#signalSentry(id, 'SIGSTOP');
    return this.#preparedRestores.begin({
      container,
      isNew,
      lockFile: this.#states.lockOf(id),
      continueSentry: () => this.#signalSentry(id, 'SIGCONT'),
    });
  }

  /**
   * Stops all processes inside, as `runsc pause` does, by a call to the sentry. Does nothing when they are frozen already.
   * Calls `frozen` when the sentry has stopped them, before the state file says so.
   *
   * A sentry ends when it gets one call to resume more than calls to pause. So this writes a note beside the state file, calls
   * the sentry, writes the state file and removes the note. After a failure, or when the server dies in between, the note
   * stays and `mayBeFrozen` is true. The caller then finds out whether the processes run, and calls `settleFreeze`.
   */
  async freeze(
    container: NamedContainer,
    signal: AbortSignal,
    frozen: () => Promise<void> | void = () => {},
  ): Promise<void> {
    const { id } = container;
    const { is } = await this.recordedState(id);
    if (is === 'frozen') return;
    // This fails: the output of the program says what is wrong with the container.
    if (is !== 'running') return this.#pause(container, signal);
    if (this.mayBeFrozen(id))
      throw new TorporError('conflict', `It is not known whether the container ${id} is frozen.`);
    this.#states.noteFreezing(id);
    try {
      await this.#callSentry(id, 'containerManager.Pause', 'pause', signal);
    } catch (thrown) {
      if (!(thrown instanceof SentryRefusal)) throw thrown;
      this.#states.removeFreezingNote(id);
      return this.#pause(container, signal);
    }
    await frozen();
    this.#states.writeStatus(id, 'paused');
    this.#states.removeFreezingNote(id);
  }

  /**
   * Whether a freeze of this container has failed or was interrupted. If the container is recorded as running, its processes
   * may be frozen all the same.
   */
  mayBeFrozen(id: string): boolean {
    return this.#states.isNotedAsFreezing(id);
  }

  /** Ends the uncertainty of `mayBeFrozen`: lets the processes go on, unless the caller has seen that they run. */
  async settleFreeze(id: string, isRunning: boolean, signal: AbortSignal): Promise<void> {
    if (!isRunning) await this.#callSentry(id, 'containerManager.Resume', 'resume', signal);
    this.#states.removeFreezingNote(id);
  }

  /** Lets the processes go on (`runsc resume`). Does nothing when they run. */
  async thaw(container: NamedContainer, signal: AbortSignal): Promise<void> {
    const { id } = container;
    await this.#preparedCheckpoints.cancel(id);
    await this.#runAttached('resume', container, ['resume', id], signal, { already: 'running' });
    this.#states.removeFreezingNote(id);
  }

  /** Runs `runsc pause`. A container that was never started cannot be used after this command. */
  async #pause(container: NamedContainer, signal: AbortSignal): Promise<void> {
    // The prepared checkpoint holds the lock that this command waits for.
    await this.#preparedCheckpoints.cancel(container.id);
    await this.#runAttached('pause', container, ['pause', container.id], signal, { already: 'frozen' });
  }

  /**
   * Stops the sentry of a frozen container (SIGSTOP): the container then takes no processor time at all. Only
   * `continueSentry` and `killProcesses` may follow. Returns false when the container is not frozen.
   *
   * The processes in which the sentry runs the guest's code get no signal: they wait for the sentry, and a sentry may die when
   * they stop without its doing.
   */
  async stopFrozen(id: string): Promise<boolean> {
    const found = await this.recordedState(id);
    if (found.is === 'frozen') sendSignal(found.pid, 'SIGSTOP');
    return found.is === 'frozen';
  }

  /** Lets a stopped sentry run again (SIGCONT). Its container stays frozen. */
  async continueSentry(id: string): Promise<void> {
    await this.#signalSentry(id, 'SIGCONT');
  }

  /**
   * Lets a frozen container go on. Its sentry must run. Starts no program, unlike `thaw`. After a failure it is unknown
   * whether the container is frozen, so the caller must end it.
   */
  async continueFrozen(id: string, signal: AbortSignal, sentry = this.connectSentry(id)): Promise<void> {
    await this.#callSentry(id, 'containerManager.Resume', 'state', signal, sentry);
    this.#states.writeStatus(id, 'running');
  }

  /** Connects to a sentry that is about to be called by `continueFrozen`. The caller closes the connection if it is not used. */
  connectSentry(id: string): SentryConnection {
    return new SentryConnection(this.#states.socketOf(id));
  }

  /**
   * Starts the program that `writeImage` needs, which takes some 20 ms, while the container runs. Until `writeImage` or
   * `cancelImage` no call but `freeze` may be made that starts a program for the container.
   */
  prepareImage(container: Container): void {
    this.#preparedCheckpoints.begin(container, this.#states.lockOf(container.id));
  }

  /** Ends what `prepareImage` started. */
  async cancelImage(id: string): Promise<void> {
    await this.#preparedCheckpoints.cancel(id);
  }

  /** Writes the memory image into a directory without one. The container stays frozen or running, as it was. */
  async writeImage(container: NamedContainer, image: string, signal: AbortSignal): Promise<void> {
    if (container.runsc?.readsUntouchedMemory === true) await this.#refuseHugeReservation(container);
    const timeoutMs = this.#cli.timeoutOf('checkpoint');
    const bound = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const result = await this.#preparedCheckpoints.write(container.id, image, bound);
    if (result === undefined) {
      const command = this.#cli.checkpointCommand(container, image);
      const ended = await this.#cli.run('checkpoint', command, signal);
      return this.#requireSuccess('checkpoint', container, ended, signal);
    }
    signal.throwIfAborted();
    if (result.status === null && bound.aborted)
      throw programTimedOut(this.#cli.programOf(container), timeoutMs, { container: container.id });
    await this.#requireSuccess('checkpoint', container, result, signal);
  }

  /**
   * The state that runsc has recorded and the kernel confirms. Starts no program and does not ask the sentry, which is
   * enough to know whether the container lives and whether it is frozen.
   */
  async recordedState(id: string): Promise<ContainerState> {
    const recorded = await this.#states.read(id);
    return recorded === undefined ? { is: 'absent' } : this.#confirmed(id, recorded);
  }

  /** The memory that the processes use, which is about the size of an image; undefined when it cannot be read. */
  async memoryBytes(id: string): Promise<number | undefined> {
    return (await this.#memoryOf(id))?.usedBytes;
  }

  /** The state as the sentry reports it. Throws when the sentry does not answer: that proves nothing. */
  async state(container: NamedContainer, signal: AbortSignal): Promise<ContainerState> {
    const { id } = container;
    const command = this.#cli.commandLine(container, ['state', id]);
    const { status, stdout, stderr } = await this.#cli.run('state', command, signal);
    if (status !== 0) {
      if (!(await this.#states.has(id))) return { is: 'absent' };
      throw runscFailure({ subcommand: 'state', container: id, status, output: stderr }, null);
    }
    return this.#confirmed(id, parseStateOutput(stdout));
  }

  /**
   * Every container that has a file or a process. Does not use `runsc list`: that waits for each sentry, also for one
   * that hangs, and misses containers whose state file was lost.
   */
  async list(): Promise<string[]> {
    const files = await this.#states.containers();
    const processes = (await this.#processes.run()).flatMap(({ container }) => container ?? []);
    return [...new Set([...files, ...processes])].sort();
  }

  /** The host processes of a container: its sentry and its gofer. */
  async processes(container: Pick<Container, 'id' | 'bundle'>): Promise<number[]> {
    return (await this.#processesOf(container)).map(({ pid }) => pid);
  }

  /** Sends a signal to the first process inside. */
  async kill(container: NamedContainer, signalName: string, signal: AbortSignal): Promise<void> {
    await this.#runAttached('kill', container, ['kill', container.id, signalName], signal);
  }

  /**
   * Kills sentry and gofer, and resolves when they are dead and hold no mount, file or namespace any more. The state
   * that runsc keeps of the container stays for `delete`.
   */
  async killProcesses(container: Pick<Container, 'id' | 'bundle'>, signal: AbortSignal): Promise<void> {
    const bound = AbortSignal.any([signal, AbortSignal.timeout(this.#cli.deathTimeoutMs)]);
    await this.#preparedRestores.cancel(container.id);
    await this.#preparedCheckpoints.cancel(container.id);
    for (let found = await this.#processesOf(container); found.length > 0; ) {
      for (const { pid } of found) sendSignal(pid, 'SIGKILL');
      await this.#clock.sleep(POLL_MS, bound).catch(() => {
        signal.throwIfAborted();
        throw new TorporError('timeout', `The sentry of ${container.id} does not die.`, {
          details: { pids: found.map(({ pid }) => pid) },
        });
      });
      const alive = await Promise.all(found.map(isAlive));
      const left = found.filter((_, index) => alive[index]);
      // A command that was still creating the container may have started a process meanwhile.
      found = left.length > 0 ? left : await this.#processesOf(container);
    }
  }

  /**
   * Removes the state that runsc keeps of an ended container; an absent container is fine. With `--ignore-cgroups` this
   * does everything that `runsc delete` does, and does not wait.
   */
  async deleteState(id: string): Promise<void> {
    this.#sentries.evict(id);
    await this.#states.delete(id);
  }

  /**
   * Removes everything of a container, in whatever state; an absent container is fine. Too slow while a caller waits:
   * runsc waits until the host's init process has reaped the dead, which may take seconds.
   */
  async delete(container: NamedContainer & Pick<Container, 'bundle'>, signal: AbortSignal): Promise<void> {
    const { id } = container;
    await this.killProcesses(container, signal);
    await this.#runAttached('delete', container, ['delete', '--force', id], signal);
    // runsc leaves the files of a container whose creation did not finish.
    await this.deleteState(id);
  }

  /** runsc counts a dead sentry as running until the host's init process has reaped it, which may be never. */
  async #confirmed(id: string, { status, pid }: RecordedState): Promise<ContainerState> {
    if (status === 'stopped' || !(await this.#sentries.isSentryOf(pid, id))) return { is: 'gone' };
    // runsc says "paused" of a frozen container.
    if (status === 'paused') return { is: 'frozen', pid };
    return { is: status === 'running' ? 'running' : 'created', pid };
  }

  /**
   * Runs a command that leaves no process running. A failure does not count when the container is in the state that the
   * command was to bring about (`already`).
   */
  async #runAttached(
    subcommand: RunscCommand,
    container: NamedContainer,
    args: readonly string[],
    signal: AbortSignal,
    { already, ...options }: { already?: ContainerState['is'] } & Pick<ProgramOptions, 'launcher'> = {},
  ): Promise<void> {
    const command = this.#cli.commandLine(container, args);
    const result = await this.#cli.run(subcommand, command, signal, options);
    await this.#requireSuccess(subcommand, container, result, signal, already);
  }

  async #requireSuccess(
    subcommand: RunscCommand,
    container: NamedContainer,
    { status, stderr }: ProgramResult,
    signal: AbortSignal,
    already?: ContainerState['is'],
  ): Promise<void> {
    if (status === 0) return;
    const state = await this.#stateAfterFailure(container, signal);
    if (already !== undefined && state?.is === already) return;
    throw runscFailure({ subcommand, container: container.id, status, output: stderr }, state);
  }

  /** Calls the sentry. The call may take as long as the command of runsc that makes the same call. */
  async #callSentry(
    id: string,
    method: SentryMethod,
    command: RunscCommand,
    signal: AbortSignal,
    sentry = this.connectSentry(id),
  ): Promise<void> {
    const timeoutMs = this.#cli.timeoutOf(command);
    const bound = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    await sentry.call(method, bound).catch((thrown: unknown) => {
      signal.throwIfAborted();
      if (!bound.aborted) throw thrown;
      throw new TorporError('timeout', `The sentry of ${id} did not answer within ${timeoutMs} ms.`);
    });
  }

  /** Runs a command that leaves the sentry running, and gives it files to write its logs and output to. */
  async #runDetached(
    subcommand: 'create' | 'run' | 'restore',
    container: Container,
    args: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    const { id, logs } = container;
    const command = await this.#cli.loggingCommandLine(container, [subcommand, ...args]);
    const log = join(logs, LOG_FILES.runsc);
    const before = await logSize(log);
    // The sentry of a created container is a member of its control group already.
    const isNew = subcommand !== 'restore' || !(await this.#states.has(id));
    const wrapped = (isNew ? container.wrapCreation?.(command) : undefined) ?? command;
    const launcher = subcommand === 'create' ? this.#cli.launcher : this.#cli.networkLauncher(container);
    const outputFile = this.#cli.outputOf(container);
    const { status } = await this.#cli.run(subcommand, wrapped, signal, { outputFile, launcher });
    if (status === 0) return;
    const output = await lastLogged(log, before);
    throw runscFailure({ subcommand: subcommand, container: id, status, output }, null);
  }

  async #signalSentry(id: string, name: 'SIGSTOP' | 'SIGCONT'): Promise<void> {
    const found = await this.recordedState(id);
    if ('pid' in found) sendSignal(found.pid, name);
  }

  async #stateAfterFailure(container: NamedContainer, signal: AbortSignal): Promise<ContainerState | null> {
    return this.state(container, signal).catch(() => {
      signal.throwIfAborted();
      return null;
    });
  }

  async #memoryOf(id: string): Promise<SentryMemory | undefined> {
    const found = await this.recordedState(id);
    return 'pid' in found ? sentryMemory(found.pid) : undefined;
  }

  /** An image that is being written cannot be stopped, and the container is frozen until it is complete. */
  async #refuseHugeReservation(container: NamedContainer): Promise<void> {
    const { reservedBytes = 0 } = (await this.#memoryOf(container.id)) ?? {};
    if (reservedBytes <= MAX_RESERVED_BYTES) return;
    const gib = (bytes: number) => Math.round(bytes / GIB);
    throw new TorporError(
      'capability_unsupported',
      `The programs of the sandbox have reserved ${gib(reservedBytes)} GiB of memory; this runsc can capture ${gib(MAX_RESERVED_BYTES)} GiB.`,
      {
        hint: 'Pause it with mode "files", or install a newer runsc, which captures only the memory that is in use.',
        details: { container: container.id, reservedBytes },
      },
    );
  }

  /** For a name that exists, runsc reports the conflict, forgets the container, and leaves its processes running. */
  async #refuseExisting(id: string): Promise<void> {
    if (!(await this.#states.has(id))) return;
    throw new TorporError('conflict', `There is a container ${id} already.`, { details: { container: id } });
  }

  async #processesOf({ id, bundle }: Pick<Container, 'id' | 'bundle'>): Promise<RunscProcess[]> {
    const all = await this.#processes.run();
    const found = all.filter(
      (process) => process.container === id || (process.container === null && process.bundle === bundle),
    );
    const sentry = await this.#sentries.living(id);
    if (sentry === undefined || found.some(({ pid }) => pid === sentry.pid)) return found;
    return [...found, { ...sentry, container: id, bundle }];
  }
}

function sendSignal(pid: number, name: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
  try {
    process.kill(pid, name);
  } catch {
    // The process has ended by itself.
  }
}
