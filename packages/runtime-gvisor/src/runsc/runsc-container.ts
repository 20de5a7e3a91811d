/** A container as runsc knows it: what names it, which runsc program controls it, and the states it can be in. */

export interface Container {
  /** Never reused: when a container is created under the name of a living one, runsc forgets the living one. */
  readonly id: string;
  /** The directory with config.json. No two containers share one. */
  readonly bundle: string;
  /** The directory for the output of runsc and of the processes inside. Created when missing. */
  readonly logs: string;
  /** The network namespace that config.json names, as a path; null when it names none. */
  readonly netns: string | null;
  /** The runsc that creates and controls the container; the default program when undefined. */
  readonly runsc?: ContainerProgram;
  /** Wraps the command that creates the sentry, to give the sentry a control group and the memory that the guest sees. */
  readonly wrapCreation?: (command: readonly string[]) => readonly [string, ...string[]];
}

/** Part of the instance record on disk, so its field names are a format. */
export interface ContainerProgram {
  readonly program: string;
  /** Whether the program must set up the network while /proc/sys/net is hidden. */
  readonly hideNetworkSettings: boolean;
  /** Whether a checkpoint also reads memory that was reserved and never touched. */
  readonly readsUntouchedMemory?: boolean;
  /** Whether set-user-ID programs may change their user, unless the OCI spec forbids new privileges. */
  readonly allowsSetuid?: boolean;
}

/** As much of a container as a command that controls it needs. */
export type NamedContainer = Pick<Container, 'id' | 'runsc'>;

export type ContainerState =
  | { readonly is: 'created' | 'running' | 'frozen'; readonly pid: number }
  /** The processes are dead; the state that runsc keeps of the container is still to be deleted. */
  | { readonly is: 'gone' }
  | { readonly is: 'absent' };
