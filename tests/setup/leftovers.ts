/**
 * Fails a test run that leaves processes, mounts or network namespaces behind, and names the test file that made the
 * temporary directory of each. Other test runs on the same machine have other directories.
 */
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    /** A file with one line for each temporary directory: its path and its test file. */
    temporaryDirectories: string;
  }
}

/** What is still ending gets this long; what was left behind stays. */
const GRACE_MS = 5_000;
const PAUSE_MS = 200;

export default function watchLeftovers({ provide }: TestProject): () => Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'torpor-run-'));
  const record = join(directory, 'directories');
  writeFileSync(record, '');
  provide('temporaryDirectories', record);
  return async () => {
    const records = readFileSync(record, 'utf8');
    rmSync(directory, { recursive: true });
    let left = leftovers(records);
    for (let waited = 0; left.length > 0 && waited < GRACE_MS; waited += PAUSE_MS) {
      await delay(PAUSE_MS);
      left = leftovers(records);
    }
    if (left.length > 0) throw new Error(`The tests have left this behind:\n${left.join('\n')}`);
  };
}

interface Mark {
  readonly file: string;
  readonly texts: readonly string[];
}

/** Names in which servers with these data directories can be found on the host. */
function marksOf(records: string): Mark[] {
  return records
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      const [directory = '', file = ''] = line.split('\t');
      const dataDirs = [directory, ...DATA_DIRS.map((name) => join(directory, name))];
      return { file: relative(process.cwd(), file), texts: [directory, ...dataDirs.flatMap(namesOnHost)] };
    });
}

/** Where tests put data directories in their temporary directory. */
const DATA_DIRS = ['data', 'again', 'disk/data'];

/** How the runtimes name what belongs to a data directory and lies outside of it. */
function namesOnHost(dataDir: string): string[] {
  const gvisor = digestOf(dataDir).slice(0, 6);
  const processes = digestOf(join(dataDir, 'process')).slice(0, 12);
  return [`/run/torpor/${gvisor}/`, `/run/netns/${gvisor}-`, `/var/lib/torpor/process/${processes}/`];
}

function digestOf(path: string): string {
  return createHash('sha256').update(path).digest('hex');
}

/** One line for each thing on the host that names one of the recorded directories. */
export function leftovers(records: string): string[] {
  const marks = marksOf(records);
  return [...processes(), ...mounts(), ...namespaces()].flatMap((line) => {
    const mark = marks.find(({ texts }) => texts.some((text) => line.includes(text)));
    return mark === undefined ? [] : `${mark.file}: ${line}`;
  });
}

function processes(): string[] {
  const pids = entries('/proc').filter((name) => /^\d+$/.test(name) && name !== String(process.pid));
  return pids.map((pid) => {
    const command = read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
    return `process ${pid} in ${linkTarget(`/proc/${pid}/cwd`)}: ${command}`;
  });
}

function mounts(): string[] {
  return read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => `mount ${line}`);
}

function namespaces(): string[] {
  return entries('/run/netns').map((name) => `network namespace /run/netns/${name}`);
}

function entries(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function linkTarget(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '?';
  }
}
