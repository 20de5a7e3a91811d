/** The command line of runsc: its flags, the namespace in which a command runs, and the time it may take. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '@torpor/engine';
import {
  hostMountNamespace,
  type Launcher,
  type MountNamespace,
  type ProgramOptions,
  type ProgramResult,
  runProgram,
} from '@torpor/host';
import { DEFAULT_RUNTIME_SETTINGS, type RuntimeSettings } from '@torpor/runtime-shared';
import { withHiddenNetSysctls } from './hidden-net-sysctls.ts';
import type { Container, NamedContainer } from './runsc-container.ts';
import type { RunscCommand } from './runsc-failure.ts';

export interface RunscOptions {
  readonly program: string;
  /** The directory in which runsc keeps its state. Each server has its own. */
  readonly root: string;
  readonly network: 'sandbox' | 'none';
  /** Leaves control groups alone: the host has none, or something else manages them. */
  readonly ignoreCgroups?: boolean;
  /** What sandboxes may do with Unix sockets of the host below their mounts. Nothing when undefined. */
  readonly hostUds?: 'open' | 'create' | 'all';
  /** Discards the output of the first process: root of a guest could fill the host's disk with it. */
  readonly discardOutput?: boolean;
  /** Makes each process of runsc write a debug log of its own. */
  readonly debug?: boolean;
  /** The mount namespace with the roots of containers; the one of this process when undefined. */
  readonly mounts?: MountNamespace;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  /** One time limit for every command; for tests. */
  readonly timeoutMs?: number;
}

/** Inside a container's `logs`. */
export const LOG_FILES = {
  /** What runsc and the sentry log, as JSON objects. */
  runsc: 'runsc.log',
  /** Why a sentry panicked. */
  panic: 'panic.log',
  /** The output of the first process, and the output of runsc until that process starts. */
  output: 'output.log',
} as const;

/** Writing the image of a large sandbox takes seconds on a slow disk; a sentry that hangs never answers. */
const TIMEOUT_SETTING: Readonly<Record<RunscCommand, keyof RuntimeSettings>> = {
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

export type CommandLine = readonly [string, ...string[]];

export class RunscCli {
  readonly #options: RunscOptions;
  readonly #settings: RuntimeSettings;
  readonly #mounts: MountNamespace;
  readonly #hiddenSysctlsLauncher: Launcher;

  constructor(options: RunscOptions) {
    this.#options = options;
    this.#settings = options.settings ?? DEFAULT_RUNTIME_SETTINGS;
    this.#mounts = options.mounts ?? hostMountNamespace;
    this.#hiddenSysctlsLauncher = withHiddenNetSysctls(this.#mounts.enterCommand);
  }

  /** Containers go on running. */
  close(): void {
    this.#hiddenSysctlsLauncher.close();
  }

  timeoutOf(subcommand: RunscCommand): number {
    return this.#options.timeoutMs ?? this.#settings[TIMEOUT_SETTING[subcommand]];
  }

  /** How long the processes of a container may take to die after SIGKILL. */
  get deathTimeoutMs(): number {
    return this.#options.timeoutMs ?? this.#settings.sentryDeathMs;
  }

  programOf({ runsc }: NamedContainer): string {
    return runsc?.program ?? this.#options.program;
  }

  /** Runs commands where the roots of containers are mounted. */
  get launcher(): Launcher {
    return this.#mounts.launcher;
  }

  /** Runs commands that set up the network of a container: start, run and restore. */
  networkLauncher({ netns, runsc }: Container): Launcher {
    const hides = netns !== null && runsc?.hideNetworkSettings !== false;
    return hides ? this.#hiddenSysctlsLauncher : this.launcher;
  }

  /** Where the output of the first process goes. */
  outputOf({ logs }: Container): string {
    return this.#options.discardOutput === true ? '/dev/null' : join(logs, LOG_FILES.output);
  }

  /** For a command of a container that exists: it prints its errors and logs nothing. */
  commandLine(container: NamedContainer, args: readonly string[]): CommandLine {
    return [this.programOf(container), ...this.#flags(container), ...args];
  }

  /** The container stays in the state that it is in. */
  checkpointCommand(container: NamedContainer, image: string): CommandLine {
    const how = ['--leave-running', '--compression=none', `--image-path=${image}`];
    return this.commandLine(container, ['checkpoint', ...how, container.id]);
  }

  /** For a command that leaves a sentry running: it logs into the container's directory, which is created here. */
  async loggingCommandLine(container: Container, args: readonly string[]): Promise<CommandLine> {
    const { logs } = container;
    await mkdir(logs, { recursive: true, mode: 0o700 });
    const flags = [
      ...this.#flags(container),
      `--log=${join(logs, LOG_FILES.runsc)}`,
      '--log-format=json',
      `--panic-log=${join(logs, LOG_FILES.panic)}`,
    ];
    if (this.#options.debug === true)
      flags.push('--debug', `--debug-log=${join(logs, 'debug-%COMMAND%.log')}`);
    return [this.programOf(container), ...flags, ...args];
  }

  run(
    subcommand: RunscCommand,
    [program, ...args]: CommandLine,
    signal: AbortSignal,
    options: Pick<ProgramOptions, 'outputFile' | 'launcher'> = {},
  ): Promise<ProgramResult> {
    return runProgram(program, args, {
      signal,
      timeoutMs: this.timeoutOf(subcommand),
      launcher: this.launcher,
      ...options,
    });
  }

  #flags({ runsc }: NamedContainer): string[] {
    const { root, network, ignoreCgroups, hostUds } = this.#options;
    const flags = [`--root=${root}`, '--platform=systrap', '--overlay2=none', `--network=${network}`];
    // The sandbox remembers a closed connection for a minute, and without this flag that would make a checkpoint fail.
    // Connections that a program still has open are reset before; `connection-resets.ts` of the network says why.
    if (network === 'sandbox') flags.push('--net-disconnect-ok');
    // Applies the seccomp filter of the OCI spec, where the spec has one.
    flags.push('--oci-seccomp');
    if (ignoreCgroups === true) flags.push('--ignore-cgroups');
    if (hostUds !== undefined) flags.push(`--host-uds=${hostUds}`);
    if (runsc?.allowsSetuid === true) flags.push('--allow-suid');
    return flags;
  }
}
