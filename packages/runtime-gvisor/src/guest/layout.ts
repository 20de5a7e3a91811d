/** Paths inside a guest. */

/** The tools of Torpor, read-only. */
export const TOOLS = '/.torpor';

export const AGENT_SCRIPT = `${TOOLS}/agent/agent.mjs`;
export const SUDO_SCRIPT = `${TOOLS}/agent/sudo.cjs`;
/** Programs for users, first in their PATH. */
export const TOOLS_BIN = `${TOOLS}/bin`;
/** A small tmpfs inside the tools, for files that must not outlive a start. */
export const TOOLS_RUN = `${TOOLS}/run`;
export const SUDO_DIR = `${TOOLS_RUN}/sudo`;
/** The files that the agent shows instead of /proc/cpuinfo and its like. */
export const PROCESSORS_DIR = `${TOOLS_RUN}/processors`;

/** In the directory of the tools: mounted over what no guest may see of the host. */
export const EMPTY_DIRECTORY = 'empty';
export const EMPTY_FILE = 'empty-file';

/** Written before a boot, read and removed by the agent. At the top of the root, where no link can lead elsewhere. */
export const CREDENTIAL_FILE = '/.torpor-credential';

/** The PATH of users. A template may add to it; the tools stay first. */
export const GUEST_PATH = `${TOOLS_BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;

/** The default user of the agent's protocol. */
export const GUEST_USER = 'user';
export const GUEST_UID = 1000;
export const GUEST_HOME = '/home/user';

/** A directory or file of the host that a guest sees and cannot change. */
export interface GuestBind {
  readonly source: string;
  readonly destination: string;
}
