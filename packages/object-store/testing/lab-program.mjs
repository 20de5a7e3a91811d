/** Where the S3 server of the test lab is: `npm run lab:setup` builds it, once for all clones on a machine. */
import { join } from 'node:path';

export const LAB = '/var/lib/torpor/lab';
export const VERSITYGW_VERSION = 'v1.8.0';

/** The path of the program, whether it is built or not. @param {string} [lab] */
export function versitygwProgram(lab = LAB) {
  return join(lab, `versitygw-${VERSITYGW_VERSION}`, 'versitygw');
}
