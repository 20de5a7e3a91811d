/**
 * The log of one build: lines are cleaned, collected for a moment and written in batches. A failing database loses
 * lines but does not fail the build.
 */
import { cleanLine, LineBuffer } from '@torpor/host';
import type { BuildState, JobId } from '@torpor/protocol';
import { type BuildContext, LOG_CHANNEL } from '../context.ts';

interface Line {
  readonly at: number;
  readonly source: string;
  readonly phase: BuildState;
  readonly text: string;
}

const WRITE_EVERY_MS = 100;
const LINES_AT_ONCE = 200;
/** Limit for lines that wait for a slow database. Further lines are dropped. */
const MAX_WAITING = 5_000;

export class BuildLog {
  /** The current stage of the build, which every line carries. */
  phase: BuildState = 'starting';
  readonly #ctx: BuildContext;
  readonly #jobId: JobId;
  readonly #waiting: Line[] = [];
  readonly #buffer: LineBuffer;
  #writing: Promise<void> = Promise.resolve();
  #planned = false;
  #hurry = new AbortController();

  constructor(ctx: BuildContext, jobId: JobId) {
    this.#ctx = ctx;
    this.#jobId = jobId;
    this.#buffer = new LineBuffer((source, line) => this.line(source, line));
  }

  /** Adds one complete line. */
  line(source: string, text: string): void {
    const cleaned = cleanLine(text, this.#ctx.secrets);
    if (cleaned === undefined || this.#waiting.length >= MAX_WAITING) return;
    this.#waiting.push({ at: this.#ctx.clock.now(), source, phase: this.phase, text: cleaned });
    this.#plan();
  }

  /** Adds output in pieces, which need not end at line breaks. */
  output(channel: string, text: string): void {
    this.#buffer.add(channel, text);
  }

  /** Writes all lines so far. Does not throw when the database fails. */
  async flush(): Promise<void> {
    this.#buffer.end();
    this.#planned = true;
    this.#hurry.abort();
    this.#hurry = new AbortController();
    this.#writing = this.#writing.then(() => this.#write());
    await this.#writing;
  }

  #plan(): void {
    if (this.#planned) return;
    this.#planned = true;
    const { signal } = this.#hurry;
    this.#writing = this.#writing.then(async () => {
      await this.#ctx.clock.sleep(WRITE_EVERY_MS, signal).catch(() => {});
      await this.#write();
    });
  }

  async #write(): Promise<void> {
    this.#planned = false;
    while (this.#waiting.length > 0) {
      const lines = this.#waiting.splice(0, LINES_AT_ONCE);
      await insertLines(this.#ctx, this.#jobId, lines).catch((thrown: unknown) =>
        this.#ctx.report('a build log was not written', { jobId: this.#jobId, error: thrown }),
      );
    }
  }
}

/** Line numbers are taken from the job's row, whose lock keeps a second writer from taking the same numbers. */
async function insertLines(ctx: BuildContext, jobId: JobId, lines: readonly Line[]): Promise<void> {
  const { maxLogLines } = ctx.settings;
  await ctx.db.transaction(async (tx) => {
    const [row] = await tx.query<{ last_line: number }>(
      'UPDATE build_jobs SET last_line = last_line + $2 WHERE id = $1 RETURNING last_line',
      [jobId, lines.length],
    );
    if (row === undefined) return;
    const first = row.last_line - lines.length + 1;
    const kept = lines
      .map((line, index) => ({ ...line, id: first + index }))
      .filter(({ id }) => id <= maxLogLines)
      .map((line) =>
        line.id === maxLogLines ? { ...line, text: 'The log is full; further lines are dropped.' } : line,
      );
    if (kept.length === 0) return;
    const params = kept.flatMap(({ id, at, source, phase, text }) => [jobId, id, at, source, phase, text]);
    const rows = kept.map((_, row) => `(${[1, 2, 3, 4, 5, 6].map((n) => `$${6 * row + n}`).join(', ')})`);
    await tx.query(
      `INSERT INTO build_logs (job_id, id, at, source, phase, text) VALUES ${rows.join(', ')}`,
      params,
    );
    tx.notify(LOG_CHANNEL);
  });
}
