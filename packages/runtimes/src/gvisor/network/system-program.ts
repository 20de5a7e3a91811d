/** Runs `ip`, `nft`, `ss` and their like, each given its input whole and each argument as it is. */
import { execFile } from 'node:child_process';
import { TorporError } from '@torpor/protocol';
import { isMissing } from '../../storage-failure.ts';

/** The package of Debian and Ubuntu that has each program. */
const PACKAGES = {
  ip: 'iproute2',
  ss: 'iproute2',
  nft: 'nftables',
  nsenter: 'util-linux',
  conntrack: 'conntrack',
} as const;

export type SystemProgram = keyof typeof PACKAGES;

/** Past this one hangs, and nothing it was asked for counts as done. */
const PATIENCE_MS = 20_000;
const OUTPUT_AT_MOST = 64 * 1024 * 1024;

/** What the program printed. Throws when it ends otherwise than well. */
export function runProgram(program: SystemProgram, args: readonly string[], input = ''): Promise<string> {
  return execute(program, program, args, input);
}

/** `runProgram` inside a network namespace; the files it sees are the host's. */
export function runInNamespace(
  netns: string,
  program: SystemProgram | 'sh',
  args: readonly string[],
  input = '',
): Promise<string> {
  return execute('nsenter', program, [`--net=${namespacePath(netns)}`, program, ...args], input);
}

/** What `nsenter` ends with when there is no such program. */
const NO_SUCH_PROGRAM = 127;

function execute(
  entry: SystemProgram,
  program: SystemProgram | 'sh',
  args: readonly string[],
  input: string,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { timeout: PATIENCE_MS, killSignal: 'SIGKILL', maxBuffer: OUTPUT_AT_MOST } as const;
    const child = execFile(entry, args, options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else if (isMissing(error)) reject(missingProgram(entry));
      else if (error.code === NO_SUCH_PROGRAM && program !== 'sh') reject(missingProgram(program));
      else reject(failure(program, args, error, stderr));
    });
    // A program that ends before it has read everything says why by its status.
    child.stdin?.on('error', () => {});
    child.stdin?.end(input);
  });
}

export function namespacePath(netns: string): string {
  return `/run/netns/${netns}`;
}

function failure(program: string, args: readonly string[], error: Error, stderr: string): TorporError {
  const said = stderr.trim().slice(0, 1_000);
  return new TorporError('internal', `${program} failed: ${said === '' ? error.message : said}`, {
    details: { program, args },
    cause: error,
  });
}

function missingProgram(program: SystemProgram): TorporError {
  return new TorporError('capability_unsupported', `The program ${program} is not installed.`, {
    hint: `Install it: apt-get install ${PACKAGES[program]}`,
    details: { program },
  });
}
