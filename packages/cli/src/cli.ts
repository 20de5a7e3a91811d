/** What a command handler gets: streams, the client of the server, and output that respects `--json`. */

import type { Torpor } from '@torpor/sdk';
import type { Command } from 'commander';
import { type ConnectionOptions, openConnection } from './connection.ts';
import type { Io } from './io.ts';
import { withSpinner } from './spinner.ts';

export interface CommonOptions extends ConnectionOptions {
  readonly json?: boolean | undefined;
}

export class Cli {
  readonly io: Io;
  readonly options: CommonOptions;
  /** Fires when the user interrupts. */
  readonly signal: AbortSignal;
  #client: Promise<Torpor> | undefined;

  constructor(io: Io, options: CommonOptions, signal: AbortSignal) {
    this.io = io;
    this.options = options;
    this.signal = signal;
  }

  get json(): boolean {
    return this.options.json === true;
  }

  /** Whether the CLI can ask the user questions. */
  get interactive(): boolean {
    return !this.json && this.io.stdin.isTTY === true && this.io.stderr.isTTY === true;
  }

  torpor(): Promise<Torpor> {
    this.#client ??= openConnection(this.io, this.options);
    return this.#client;
  }

  /** Prints the answer: all of it as JSON, or a text for people. */
  answer(value: unknown, forPeople: () => string): void {
    this.line(this.json ? this.#toJson(value) : forPeople());
  }

  /** Prints one line of a stream of answers. */
  answerLine(value: unknown, forPeople: () => string): void {
    this.line(this.json ? JSON.stringify(value) : forPeople());
  }

  /** Prints a note on stderr, only on a terminal and without `--json`. */
  note(text: string): void {
    if (!this.json && this.io.stderr.isTTY) this.io.stderr.write(`${text}\n`);
  }

  /** Waits for `work` and shows a spinner. */
  withSpinner<T>(words: string, work: Promise<T>): Promise<T> {
    return this.json ? work : withSpinner(this.io, words, work);
  }

  line(text: string): void {
    if (text !== '') this.io.stdout.write(`${text}\n`);
  }

  #toJson(value: unknown): string {
    return this.io.stdout.isTTY ? JSON.stringify(value, null, 2) : JSON.stringify(value);
  }
}

/** The work of a command. It may return an exit code. */
export type Handler<O> = (
  cli: Cli,
  args: readonly string[],
  options: O,
) => Promise<number | undefined> | Promise<void>;

/** Converts a handler into the callback that the parser calls. */
export type HandlerFactory = <O = CommonOptions>(work: Handler<O>) => (this: Command) => Promise<void>;

/** Defines a command: its arguments, options, help and handler. */
export type Define = (command: Command, handler: HandlerFactory) => void;
