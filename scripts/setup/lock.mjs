/**
 * One setup at a time per clone: two at once would remove each other's node_modules.
 *
 * The lock is a file with the process id of its holder. link(2) creates the file with its content in one step, so an
 * incomplete lock is never read. The lock of a dead holder is taken over.
 */
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * @template T
 * @param {string} file
 * @param {(line: string) => void} say
 * @param {() => T} work
 * @returns {Promise<T>}
 */
export async function withLock(file, say, work) {
  mkdirSync(dirname(file), { recursive: true });
  let told = false;
  while (!tryToLock(file)) {
    const holder = holderOf(file);
    if (holder !== undefined && !isAlive(holder)) {
      // Two waiting setups may both come here, and the slower one may remove the new lock of the faster one. That needs two
      // setups that wait for a third one that was killed, and costs one of them an error from npm.
      rmSync(file, { force: true });
      continue;
    }
    if (!told && holder !== undefined) say(`waiting for another setup (process ${holder}; ${file})`);
    told = true;
    await sleep(200);
  }
  try {
    return work();
  } finally {
    rmSync(file, { force: true });
  }
}

/** @param {string} file */
function tryToLock(file) {
  const mine = `${file}.${process.pid}`;
  writeFileSync(mine, String(process.pid));
  try {
    linkSync(mine, file);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(mine, { force: true });
  }
}

/**
 * Undefined when the lock was released in the meantime.
 * @param {string} file
 */
function holderOf(file) {
  try {
    return Number(readFileSync(file, 'utf8'));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/** @param {unknown} error */
function codeOf(error) {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}
