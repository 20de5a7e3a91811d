/** The file that starts the CLI. */
import { fileURLToPath } from 'node:url';

export const PROGRAM_FILE = fileURLToPath(new URL('../bin/torpor.mjs', import.meta.url));
