/** What a guard ends: the processes of all sandboxes of a server, told without knowing what a sandbox is. */
export interface GuardTargets {
  /** Directories of control groups: every process in them and in the groups below. */
  readonly cgroups: readonly string[];
  /** Processes with one of these program names and this argument. */
  readonly commands: readonly { readonly names: readonly string[]; readonly argument: string }[];
  /**
   * Processes whose environment variable has the name of an entry of the directory as its value, their descendants, and the
   * processes of the users and agents that the records below these entries name.
   */
  readonly marked: readonly { readonly variable: string; readonly directory: string }[];
}

export const NO_TARGETS: GuardTargets = { cgroups: [], commands: [], marked: [] };

export function joinTargets(all: readonly GuardTargets[]): GuardTargets {
  return {
    cgroups: all.flatMap(({ cgroups }) => cgroups),
    commands: all.flatMap(({ commands }) => commands),
    marked: all.flatMap(({ marked }) => marked),
  };
}
