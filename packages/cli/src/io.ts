/** The streams, environment and clock of a command. Tests replace them. */
import { homedir } from 'node:os';
import { type Colors, colorsFor } from './colors.ts';

export interface Io {
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
  readonly home: string;
  readonly cwd: string;
  /** Colours for stdout. */
  readonly colors: Colors;
  /** Colours for stderr. */
  readonly errorColors: Colors;
  now(): number;
}

export function realIo(): Io {
  const { stdin, stdout, stderr, env } = process;
  return {
    stdin,
    stdout,
    stderr,
    env,
    home: homedir(),
    cwd: process.cwd(),
    colors: colorsFor(stdout, env),
    errorColors: colorsFor(stderr, env),
    now: Date.now,
  };
}
