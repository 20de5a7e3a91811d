/** Where an application lies in its sandbox: below the home, which each runtime has in a place of its own. */
export const WORKSPACE = 'project';

/** The name of the declared service that serves it. */
export const DEV_SERVER = 'dev-server';
