/** How to start this very program again. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

export interface OwnCommand {
  readonly command: string;
  /** Up to and including the script. */
  readonly args: readonly string[];
}

export function ownCommand(script: string): OwnCommand {
  const line = readFileSync('/proc/self/cmdline', 'utf8').split('\0').slice(0, -1);
  return commandOf(line, { execPath: process.execPath, argumentCount: process.argv.length - 2, script });
}

/**
 * In a root without libraries Node is started by a dynamic linker that was brought along, and
 * `process.execPath` is then the linker: the words before the script are the only true account.
 */
export function commandOf(
  line: readonly string[],
  own: { execPath: string; argumentCount: number; script: string },
): OwnCommand {
  const before = line.slice(0, line.length - own.argumentCount - 1);
  const isLinked = basename(own.execPath).startsWith('ld-');
  return { command: own.execPath, args: [...(isLinked ? before.slice(1) : []), own.script] };
}
