/** Where an application lies in its sandbox: below the home, which each runtime has in a place of its own. */
export const WORKSPACE = 'project';

/** The same as clients name it: every agent knows this home, wherever its own is. */
export const WORKSPACE_PATH = `/home/user/${WORKSPACE}`;

/** The name of the declared service that serves it. */
export const DEV_SERVER = 'dev-server';
