/** Where the OpenTelemetry Collector of the test lab is: `npm run lab:setup collector` builds it, once for all clones on a machine. */
import { join } from 'node:path';

const LAB = '/var/lib/torpor/lab';
/** Not every module of later versions can be fetched from the proxy of Go modules. */
export const COLLECTOR_VERSION = 'v0.139.0';

/** The path of the program, whether it is built or not. @param {string} [lab] */
export function collectorProgram(lab = LAB) {
  return join(lab, `otelcol-${COLLECTOR_VERSION}`, 'otelcol');
}
