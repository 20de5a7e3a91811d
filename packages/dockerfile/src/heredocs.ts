/** Here-documents of RUN, COPY and ADD: text that stands in the Dockerfile itself. */
import type { Instruction as Parsed } from 'dockerfile-ast';

/** A file whose content stands in the Dockerfile. */
export interface InlineFile {
  readonly name: string;
  readonly content: string;
  /** Whether variables in the content are replaced: not when its name was quoted. */
  readonly isExpanded: boolean;
}

export interface Heredocs {
  /** The first line without the operators and names of the here-documents. */
  readonly rest: string;
  /** The first line as it was written. */
  readonly firstLine: string;
  /** All lines as they were written. */
  readonly text: string;
  readonly files: readonly InlineFile[];
}

interface Position {
  readonly line: number;
  readonly character: number;
}

interface HeredocLike {
  getName(): string;
  getContentRange(): { readonly start: Position; readonly end: Position } | null;
}

/** Undefined when the instruction has none. `lines` are those of the Dockerfile. */
export function heredocsOf(one: Parsed, lines: readonly string[]): Heredocs | undefined {
  const found = (one as unknown as { getHeredocs?(): HeredocLike[] }).getHeredocs?.() ?? [];
  if (found.length === 0) return undefined;
  const text = one.getRawArgumentsContent() ?? '';
  const [firstLine = ''] = text.split('\n');
  const operators = [...firstLine.matchAll(OPERATOR)];
  return {
    rest: firstLine.replaceAll(OPERATOR, ' ').trim(),
    firstLine: firstLine.trim(),
    text,
    files: found.map((heredoc, index) => {
      const [, dash = '', quote = ''] = operators[index] ?? [];
      const content = contentOf(heredoc, lines);
      return {
        name: heredoc.getName(),
        content: dash === '' ? content : content.replace(/^\t+/gm, ''),
        isExpanded: quote === '',
      };
    }),
  };
}

const OPERATOR = /<<(-?)\s*(["']?)[A-Za-z_][A-Za-z0-9_.-]*\2/g;

/** Ends with a line break, as every text file. */
function contentOf(heredoc: HeredocLike, lines: readonly string[]): string {
  const range = heredoc.getContentRange();
  if (range === null) return '';
  // The range of the parser may end at the start of the next line or at the end of the last one.
  const { start, end } = range;
  const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
  return lines
    .slice(start.line, last + 1)
    .map((line) => `${line}\n`)
    .join('');
}
