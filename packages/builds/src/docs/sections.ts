/** A text in Markdown, taken apart at its headings. */

export interface Section {
  /** Without its marks; empty for what stands before the first heading of the second level. */
  readonly heading: string;
  readonly text: string;
}

const HEADING = /^##[ \t]+(.+?)[ \t]*#*[ \t]*$/;
const FENCE = /^ {0,3}(```|~~~)/;

/** The first is what stands before any heading of the second level: a title and what it is about. */
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
