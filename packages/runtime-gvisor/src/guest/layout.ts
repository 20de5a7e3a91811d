/** Where things lie inside a guest, for everything that puts them there or starts them. */

/** What is brought along, the same directory in every guest, read-only. */
export const TOOLS = '/.torpor';

export const AGENT_SCRIPT = `${TOOLS}/agent/agent.mjs`;
export const SUDO_SCRIPT = `${TOOLS}/agent/sudo.cjs`;
/** Programs for people, first in their PATH. */
export const TOOLS_BIN = `${TOOLS}/bin`;
/** A small file system of memory inside the tools: what must not outlive a start. */
export const TOOLS_RUN = `${TOOLS}/run`;
export const SUDO_DIR = `${TOOLS_RUN}/sudo`;

/** In the tools as this machine has them: what stands for something of the host that no guest may see. */
export const EMPTY_DIRECTORY = 'empty';
export const EMPTY_FILE = 'empty-file';

/** Put there before a boot, read and removed by the agent. In the root itself, where no link can lead away. */
export const CREDENTIAL_FILE = '/.torpor-credential';

/** People's programs; a template may add to it, but ours stay first. */
export const GUEST_PATH = `${TOOLS_BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;

/** The user that clients of the wire call `user`. */
export const GUEST_USER = 'user';
export const GUEST_UID = 1000;
export const GUEST_HOME = '/home/user';

/** A directory or file of the host that a guest sees and cannot change. */
export interface GuestBind {
  readonly source: string;
  readonly destination: string;
}
