/** The directory of the application in its sandbox, relative to the home directory, which differs between runtimes. */
export const WORKSPACE = 'project';

/** The same directory as an absolute path for clients. Every agent accepts /home/user for its home. */
export const WORKSPACE_PATH = `/home/user/${WORKSPACE}`;

/** The name of the declared service that serves the application. */
export const DEV_SERVER = 'dev-server';
