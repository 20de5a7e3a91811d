/** Runs `ip`, `nft`, `ss` and similar programs. */

import { ProgramFailure, programNotInstalled, programOutput } from '@torpor/host';

/** The Debian and Ubuntu package of each program. */
const PACKAGES = {
  ip: 'iproute2',
  ss: 'iproute2',
  nft: 'nftables',
  nsenter: 'util-linux',
  conntrack: 'conntrack',
} as const;

export type SystemProgram = keyof typeof PACKAGES;

/** A program that runs longer hangs, and the caller must assume that nothing was done. */
const TIMEOUT_MS = 20_000;

/** Resolves to what the program printed. Throws unless its exit status is 0. */
export function runSystemProgram(
  program: SystemProgram,
  args: readonly string[],
  input = '',
): Promise<string> {
  const missingHint = installHint(program);
  return programOutput(program, args, { input, timeoutMs: TIMEOUT_MS, missingHint });
}

/** The exit status of `nsenter` when the program to run does not exist. */
const NO_SUCH_PROGRAM = 127;

/** Runs a program inside a network namespace, with the files of the host. */
export async function runInNamespace(
  netns: string,
  program: SystemProgram | 'sh',
  args: readonly string[],
  input = '',
): Promise<string> {
  try {
    return await runSystemProgram('nsenter', [`--net=${namespacePath(netns)}`, program, ...args], input);
  } catch (thrown) {
    if (!(thrown instanceof ProgramFailure)) throw thrown;
    if (thrown.status === NO_SUCH_PROGRAM && program !== 'sh')
      throw programNotInstalled(program, installHint(program), thrown);
    throw new ProgramFailure(program, args, thrown.status, thrown.stderr);
  }
}

export function namespacePath(netns: string): string {
  return `/run/netns/${netns}`;
}

function installHint(program: SystemProgram): string {
  return `Install it: apt-get install ${PACKAGES[program]}`;
}
