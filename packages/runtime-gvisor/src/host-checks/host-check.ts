/** The result of checking one thing that the gVisor runtime needs from a host, and helpers for such checks. */
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { runProgram } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { RunscSearchPaths } from '../runsc/find-runsc.ts';

export interface HostCheck {
  readonly name: string;
  readonly ok: boolean;
  /** What was found, in one line. */
  readonly detail: string;
  /** What to do about it. A check that passed may have one too, for something that works and should be renewed. */
  readonly fix: string | null;
}

export interface CheckedHost extends RunscSearchPaths {
  readonly signal: AbortSignal;
}

export function good(name: string, detail: string): HostCheck {
  return { name, ok: true, detail, fix: null };
}

export function goodFor(name: string, detail: string, fix: string): HostCheck {
  return { name, ok: true, detail, fix };
}

export function bad(name: string, detail: string, fix: string): HostCheck {
  return { name, ok: false, detail, fix };
}

const TIMEOUT_MS = 10_000;

/** Runs a command that should succeed. Returns null, or the last line of its errors, or why it could not run. */
export async function trial(
  [program, ...args]: readonly [string, ...string[]],
  { signal }: Pick<CheckedHost, 'signal'>,
  cwd = '/',
): Promise<string | null> {
  try {
    const { status, stderr } = await runProgram(program, args, { signal, timeoutMs: TIMEOUT_MS, cwd });
    if (status === 0) return null;
    return stderr.trim().split('\n').at(-1) || `${program} ended with ${status}`;
  } catch (thrown) {
    signal.throwIfAborted();
    return TorporError.from(thrown).message;
  }
}

/** The directory itself, or its nearest ancestor that exists: the directory will be on the same disk. */
export async function nearestDirectory(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const isThere = await stat(at).then(
      (found) => found.isDirectory(),
      () => false,
    );
    if (isThere || at === dirname(at)) return at;
  }
}
