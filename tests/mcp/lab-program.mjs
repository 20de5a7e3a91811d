/** Where the MCP Inspector of the test lab is: `npm run lab:setup inspector` installs it, once for all clones on a machine. */
import { join } from 'node:path';

const LAB = '/var/lib/torpor/lab';
export const INSPECTOR_VERSION = '2.12.0';

/** The directory that it is installed in, whether it is there or not. @param {string} [lab] */
export function inspectorDirectory(lab = LAB) {
  return join(lab, `mcp-inspector-${INSPECTOR_VERSION}`);
}

/** Its program for the command line. @param {string} [lab] */
export function inspectorProgram(lab = LAB) {
  return join(inspectorDirectory(lab), 'node_modules/.bin/mcp-inspector');
}
