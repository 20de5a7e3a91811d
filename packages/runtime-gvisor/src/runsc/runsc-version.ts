/** Identifies a runsc program by its version and by the digest of its content. */
import { runProgram, sha256OfFile } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { dayOf } from '../binaries/releases.mjs';

export interface RunscVersion {
  /** As the program prints it, such as `release-20240729.0` or `0.0~20240729.0`. */
  readonly name: string;
  /** The release date in the name, as YYYYMMDD; null when there is none, as in a build by hand. */
  readonly releaseDate: number | null;
}

const TIMEOUT_MS = 10_000;

export async function readRunscVersion(program: string, signal: AbortSignal): Promise<RunscVersion> {
  const { status, stdout } = await runProgram(program, ['--version'], { signal, timeoutMs: TIMEOUT_MS });
  const version = status === 0 ? parseRunscVersion(stdout) : undefined;
  if (version !== undefined) return version;
  throw new TorporError('capability_unsupported', `${program} does not print a version of runsc.`, {
    details: { program, status },
  });
}

export function parseRunscVersion(printed: string): RunscVersion | undefined {
  const [, name] = /^runsc version (\S+)$/m.exec(printed) ?? [];
  if (name === undefined) return undefined;
  return { name, releaseDate: dayOf(name) };
}

/** A digest of the program's content: two builds of one version do not read each other's memory images. */
export function runscBuild(program: string): Promise<string> {
  return sha256OfFile(program);
}
