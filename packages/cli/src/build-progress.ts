/** Shows the progress of a build on a terminal: one line per stage, with its duration and the last log line. */
import { type BuildEvent, type BuildState, isBuildOver, type JobId, STAGE_LABELS } from '@torpor/protocol';
import type { Cli } from './cli.ts';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 80;
const CLEAR_LINE = '\r\u001b[K';
const DEFAULT_WIDTH = 80;

/** Resolves when the build has ended, with or without success. */
export async function followBuild(cli: Cli, id: JobId): Promise<void> {
  const { builds } = await cli.torpor();
  const { signal } = cli;
  const shown = cli.json || !cli.io.stderr.isTTY ? undefined : new StageLines(cli);
  const done = new AbortController();
  const lastLine = shown === undefined ? Promise.resolve() : follow(shown);
  try {
    for await (const event of builds.events(id, { signal })) shown?.event(event);
  } finally {
    done.abort();
    await lastLine;
    shown?.end();
  }

  /** The log is optional: the stages are shown without it. */
  async function follow(lines: StageLines): Promise<void> {
    try {
      const until = AbortSignal.any([signal, done.signal]);
      for await (const { text } of builds.followLogs(id, { signal: until })) lines.showLine(text);
    } catch {
      // The log is optional.
    }
  }
}

class StageLines {
  readonly #cli: Cli;
  readonly #timer: NodeJS.Timeout;
  #stage: BuildState | undefined;
  #since = 0;
  #said = '';
  #frame = 0;

  constructor(cli: Cli) {
    this.#cli = cli;
    this.#timer = setInterval(() => this.#draw(), FRAME_MS);
  }

  event({ type, status, timestamp }: BuildEvent): void {
    if (type !== 'build.stage.started') return;
    const at = Date.parse(timestamp);
    this.#endStage(at, status === 'failed');
    this.#stage = isBuildOver(status) ? undefined : status;
    this.#since = at;
    this.#said = '';
    this.#draw();
  }

  showLine(text: string): void {
    this.#said = text;
  }

  end(): void {
    clearInterval(this.#timer);
    this.#cli.io.stderr.write(CLEAR_LINE);
  }

  /** A finished stage stays on the screen with its duration. */
  #endStage(at: number, failed: boolean): void {
    const { stderr, errorColors } = this.#cli.io;
    if (this.#stage === undefined) return;
    const mark = failed ? errorColors.red('✗') : errorColors.green('✓');
    const seconds = errorColors.dim(`${((at - this.#since) / 1_000).toFixed(1)} s`);
    stderr.write(`${CLEAR_LINE}${mark} ${labelOf(this.#stage)} ${seconds}\n`);
  }

  #draw(): void {
    const { stderr, errorColors } = this.#cli.io;
    if (this.#stage === undefined) return;
    const label = STAGE_LABELS[this.#stage];
    const room = Math.max(0, (stderr.columns ?? DEFAULT_WIDTH) - label.length - 6);
    const sign = errorColors.cyan(FRAMES[this.#frame++ % FRAMES.length] ?? '');
    stderr.write(`${CLEAR_LINE}${sign} ${label} ${errorColors.dim(this.#said.slice(0, room))}`);
  }
}

function labelOf(stage: BuildState): string {
  return STAGE_LABELS[stage].replace(/\.+$/, '');
}
