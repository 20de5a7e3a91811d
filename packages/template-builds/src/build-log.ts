/**
 * The log of one build: lines are cleaned, collected for a moment and written in batches. A failing database loses
 * lines but does not fail the build.
 */
import type { Clock, Database, Queryable, Report } from '@torpor/engine';
import { cleanLine, LineBuffer } from '@torpor/host';

const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LogLine {
  readonly at: number;
  readonly level: LogLevel;
  readonly step: string;
  readonly text: string;
}

const WRITE_EVERY_MS = 100;
const LINES_AT_ONCE = 200;
/** Limit for lines that wait for a slow database. Further lines are dropped. */
const MAX_WAITING = 5_000;

export interface BuildLogContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly report: Report;
  readonly maxLines: number;
}

export class BuildLog {
  /** The current step, which every line carries. */
  step = 'base';
  readonly #ctx: BuildLogContext;
  readonly #buildId: string;
  readonly #hidden: readonly string[];
  readonly #waiting: LogLine[] = [];
  readonly #buffer = new LineBuffer((_, line) => this.line('info', line));
  #writing: Promise<void> = Promise.resolve();
  #planned = false;

  /** `hidden` are secrets that are replaced wherever they appear. */
  constructor(ctx: BuildLogContext, buildId: string, hidden: readonly string[]) {
    this.#ctx = ctx;
    this.#buildId = buildId;
    this.#hidden = hidden;
  }

  line(level: LogLevel, text: string): void {
    const cleaned = cleanLine(text, this.#hidden);
    if (cleaned === undefined || this.#waiting.length >= MAX_WAITING) return;
    this.#waiting.push({ at: this.#ctx.clock.now(), level, step: this.step, text: cleaned });
    if (this.#planned) return;
    this.#planned = true;
    this.#writing = this.#writing.then(async () => {
      await this.#ctx.clock.sleep(WRITE_EVERY_MS);
      await this.#write();
    });
  }

  /** Adds output in pieces, which need not end at line breaks. */
  output(channel: string, text: string): void {
    this.#buffer.add(channel, text);
  }

  /** Ends the lines of a command that had no line break. */
  endOutput(): void {
    this.#buffer.end();
  }

  /** Writes all lines so far. Does not throw when the database fails. */
  async flush(): Promise<void> {
    this.#buffer.end();
    this.#writing = this.#writing.then(() => this.#write());
    await this.#writing;
  }

  async #write(): Promise<void> {
    this.#planned = false;
    while (this.#waiting.length > 0) {
      const lines = this.#waiting.splice(0, LINES_AT_ONCE);
      await this.#insert(lines).catch((error: unknown) =>
        this.#ctx.report('the log of a template build was not written', { buildId: this.#buildId, error }),
      );
    }
  }

  /** Line numbers are taken from the row of the build. */
  async #insert(lines: readonly LogLine[]): Promise<void> {
    const { db, maxLines } = this.#ctx;
    await db.transaction(async (tx) => {
      const [row] = await tx.query<{ last_line: number }>(
        'UPDATE template_builds SET last_line = last_line + $2 WHERE id = $1 RETURNING last_line',
        [this.#buildId, lines.length],
      );
      if (row === undefined) return;
      const first = row.last_line - lines.length + 1;
      const kept = lines
        .map((line, index) => ({ ...line, id: first + index }))
        .filter(({ id }) => id <= maxLines)
        .map((line) =>
          line.id === maxLines ? { ...line, text: 'The log is full; further lines are dropped.' } : line,
        );
      if (kept.length === 0) return;
      const params = kept.flatMap(({ id, at, level, step, text }) => [
        this.#buildId,
        id,
        at,
        level,
        step,
        text,
      ]);
      const rows = kept.map(
        (_, index) => `(${[1, 2, 3, 4, 5, 6].map((n) => `$${6 * index + n}`).join(', ')})`,
      );
      await tx.query(
        `INSERT INTO template_build_logs (build_id, id, at, level, step, text) VALUES ${rows.join(', ')}`,
        params,
      );
    });
  }
}

export interface LogPage {
  /** How many lines of the least level and above are skipped. */
  readonly offset: number;
  readonly limit: number;
  readonly level: LogLevel;
}

export async function readLog(
  db: Queryable,
  buildId: string,
  { offset, limit, level }: LogPage,
): Promise<LogLine[]> {
  const shown = LOG_LEVELS.slice(LOG_LEVELS.indexOf(level));
  const rows = await db.query<{ at: number; level: LogLevel; step: string; text: string }>(
    `SELECT at, level, step, text FROM template_build_logs
     WHERE build_id = $1 AND level IN (${shown.map((_, index) => `$${index + 4}`).join(', ')})
     ORDER BY id LIMIT $2 OFFSET $3`,
    [buildId, limit, offset, ...shown],
  );
  return rows;
}
