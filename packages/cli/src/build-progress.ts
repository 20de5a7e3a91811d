/** A build as it happens: on a terminal one line per stage with its time and the last thing said; else nothing. */
import { type BuildEvent, type BuildState, isBuildOver, type JobId, STAGE_LABELS } from '@torpor/protocol';
import type { Cli } from './cli.ts';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 80;
const CLEAR_LINE = '\r\u001b[K';
const DEFAULT_WIDTH = 80;

/** Resolves when the build is over, however it ended. */
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

  /** The log is an extra: without it the stages are still shown. */
  async function follow(lines: StageLines): Promise<void> {
    try {
      const until = AbortSignal.any([signal, done.signal]);
      for await (const { text } of builds.followLogs(id, { signal: until })) lines.showLine(text);
    } catch {
      // See above.
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

  /** The stage that is over stays on the screen, with what it took. */
  #endStage(at: number, failed: boolean): void {
    const { stderr, errorColors } = this.#cli.io;
    if (this.#stage === undefined) return;
    const mark = failed ? errorColors.red('✗') : errorColors.green('✓');
    const seconds = errorColors.dim(`${((at - this.#since) / 1_000).toFixed(1)} s`);
    stderr.write(`${CLEAR_LINE}${mark} ${wordsOf(this.#stage)} ${seconds}\n`);
  }

  #draw(): void {
    const { stderr, errorColors } = this.#cli.io;
    if (this.#stage === undefined) return;
    const words = STAGE_LABELS[this.#stage];
    const room = Math.max(0, (stderr.columns ?? DEFAULT_WIDTH) - words.length - 6);
    const sign = errorColors.cyan(FRAMES[this.#frame++ % FRAMES.length] ?? '');
    stderr.write(`${CLEAR_LINE}${sign} ${words} ${errorColors.dim(this.#said.slice(0, room))}`);
  }
}

function wordsOf(stage: BuildState): string {
  return STAGE_LABELS[stage].replace(/\.+$/, '');
}
