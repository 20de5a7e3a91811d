/** Splits a Markdown text at its second-level headings. */

export interface Section {
  /** Without the `##`; empty for the text before the first such heading. */
  readonly heading: string;
  readonly text: string;
}

const HEADING = /^##[ \t]+(.+?)[ \t]*#*[ \t]*$/;
const FENCE = /^ {0,3}(```|~~~)/;

/** The first section is the text before any second-level heading: the title and the introduction. */
export function sectionsOf(markdown: string): Section[] {
  const sections: { heading: string; lines: string[] }[] = [{ heading: '', lines: [] }];
  let fence: string | undefined;
  for (const line of markdown.split(/\r?\n/)) {
    const mark = FENCE.exec(line)?.[1];
    if (mark !== undefined && (fence === undefined || fence === mark)) {
      fence = fence === undefined ? mark : undefined;
    }
    const heading = fence === undefined ? HEADING.exec(line)?.[1] : undefined;
    if (heading === undefined) sections.at(-1)?.lines.push(line);
    else sections.push({ heading, lines: [] });
  }
  return sections.map(({ heading, lines }) => ({ heading, text: lines.join('\n').trim() }));
}
