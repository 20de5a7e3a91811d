/** Runs `ip`, `nft`, `ss` and their like, each given its input whole and each argument as it is. */

import { isMissing, launch, plainEnvironment } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

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

async function execute(
  entry: SystemProgram,
  program: SystemProgram | 'sh',
  args: readonly string[],
  input: string,
): Promise<string> {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const order = { program: entry, args, env: plainEnvironment(), input };
  const { status, stdout, stderr } = await launch(order, patience).catch((thrown: unknown) => {
    throw isMissing(thrown) ? missingProgram(entry) : thrown;
  });
  if (status === 0) return stdout;
  if (status === NO_SUCH_PROGRAM && program !== 'sh') throw missingProgram(program);
  throw failure(program, args, status === null ? 'it was ended' : `it ended with ${status}`, stderr);
}

export function namespacePath(netns: string): string {
  return `/run/netns/${netns}`;
}

function failure(program: string, args: readonly string[], how: string, stderr: string): TorporError {
  const said = stderr.trim().slice(0, 1_000);
  return new TorporError('internal', `${program} failed: ${said === '' ? how : said}`, {
    details: { program, args },
  });
}

function missingProgram(program: SystemProgram): TorporError {
  return new TorporError('capability_unsupported', `The program ${program} is not installed.`, {
    hint: `Install it: apt-get install ${PACKAGES[program]}`,
    details: { program },
  });
}
