/** Which runsc a program is: its version, whether it is new enough, and which build exactly. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { runCommand } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { dayOf } from '../binaries/releases.mjs';

export interface RunscVersion {
  /** As it calls itself, such as `release-20240729.0` or `0.0~20240729.0`. */
  readonly name: string;
  /** The day in it, such as 20240729; null when it names none, as a build by hand may. */
  readonly day: number | null;
}

const BOUND_MS = 10_000;

export async function readRunscVersion(program: string, signal: AbortSignal): Promise<RunscVersion> {
  const { status, stdout } = await runCommand(program, ['--version'], { signal, boundMs: BOUND_MS });
  const version = status === 0 ? parseRunscVersion(stdout) : undefined;
  if (version !== undefined) return version;
  throw new TorporError('capability_unsupported', `${program} does not say which runsc it is.`, {
    details: { program, status },
  });
}

export function parseRunscVersion(printed: string): RunscVersion | undefined {
  const [, name] = /^runsc version (\S+)$/m.exec(printed) ?? [];
  if (name === undefined) return undefined;
  return { name, day: dayOf(name) };
}

/** The content of the program: two builds of one version do not read each other's memory images. */
export async function runscBuild(program: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(program), hash);
  return hash.digest('hex');
}
