/** Finds a command on the PATH, as a shell would. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/**
 * @param {string} name
 * @param {string} [path]
 * @returns {string | undefined}
 */
export function commandOnPath(name, path = process.env['PATH'] ?? '') {
  return path
    .split(delimiter)
    .filter((dir) => dir !== '')
    .map((dir) => join(dir, name))
    .find(isExecutable);
}

/** @param {string} file */
function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
