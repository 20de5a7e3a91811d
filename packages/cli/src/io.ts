/** The world around a command: its streams, environment and clock. */
import { homedir } from 'node:os';
import { type Colors, colorsFor } from './colors.ts';

export interface Io {
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
  readonly home: string;
  readonly cwd: string;
  /** For what goes to stdout. */
  readonly colors: Colors;
  /** For what goes to stderr. */
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
