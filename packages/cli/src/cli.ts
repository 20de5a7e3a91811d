/** What a command is given: the world, the server, and ways to say things that respect `--json`. */

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

  /** Whether somebody is there who can be asked. */
  get interactive(): boolean {
    return !this.json && this.io.stdin.isTTY === true && this.io.stderr.isTTY === true;
  }

  torpor(): Promise<Torpor> {
    this.#client ??= openConnection(this.io, this.options);
    return this.#client;
  }

  /** The answer: the whole of it as JSON, or the part that people want to see. */
  answer(value: unknown, forPeople: () => string): void {
    this.line(this.json ? this.#toJson(value) : forPeople());
  }

  /** For streams of answers: one line each. */
  answerLine(value: unknown, forPeople: () => string): void {
    this.line(this.json ? JSON.stringify(value) : forPeople());
  }

  /** A remark beside the answer: only for people, and not in the way of a pipe. */
  note(text: string): void {
    if (!this.json && this.io.stderr.isTTY) this.io.stderr.write(`${text}\n`);
  }

  /** Waits, and shows that it does. */
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

/** What a command does. It may say what to exit with. */
export type Handler<O> = (
  cli: Cli,
  args: readonly string[],
  options: O,
) => Promise<number | undefined> | Promise<void>;

/** Turns the work of a command into what the parser calls. */
export type HandlerFactory = <O = CommonOptions>(work: Handler<O>) => (this: Command) => Promise<void>;

/** Fills in a command: its arguments, options, help and work. */
export type Define = (command: Command, handler: HandlerFactory) => void;
