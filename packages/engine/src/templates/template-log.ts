/**
 * What happened while templates were prepared, since this server started. It is for people who watch a preparation; the
 * state of a template is in the database.
 */
import type { TemplateLogLine } from '@torpor/protocol';

const LINES_KEPT = 500;
const TEMPLATES_KEPT = 200;

export class TemplateLog {
  readonly #lines = new Map<string, TemplateLogLine[]>();

  add(org: string, name: string, at: number, text: string): void {
    const key = `${org} ${name}`;
    const lines = this.#lines.get(key) ?? [];
    // The template with the newest line is the last to be forgotten.
    this.#lines.delete(key);
    this.#lines.set(key, [...lines.slice(1 - LINES_KEPT), { at, text }]);
    const [oldest] = this.#lines.keys();
    if (this.#lines.size > TEMPLATES_KEPT && oldest !== undefined) this.#lines.delete(oldest);
  }

  /** Oldest first. */
  read(org: string, name: string): readonly TemplateLogLine[] {
    return this.#lines.get(`${org} ${name}`) ?? [];
  }
}
