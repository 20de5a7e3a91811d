/** The requirements that a test file cites: `(R85, R112)` or `(R85-R94)` in any of its strings. */
import { parseSync, Visitor } from 'oxc-parser';

const GROUP = /\((R\d+(?:(?:, |-)R\d+)*)\)/g;

export function citationsOf(file: string, text: string): Set<number> {
  const { program, errors } = parseSync(file, text);
  const [broken] = errors;
  if (broken !== undefined) throw new SyntaxError(`${file}: ${broken.message}`);

  const cited = new Set<number>();
  const collect = (words: string): void => {
    for (const [, group = ''] of words.matchAll(GROUP)) {
      for (const part of group.split(', ')) for (const number of numbersOf(part)) cited.add(number);
    }
  };
  new Visitor({
    Literal: ({ value }) => {
      if (typeof value === 'string') collect(value);
    },
    TemplateElement: ({ value }) => collect(value.raw),
  }).visit(program);
  return cited;
}

/** `R7` is 7; `R7-R9` is 7, 8, 9. */
function numbersOf(part: string): number[] {
  const [first = 0, last = first] = part.split('-').map((name) => Number(name.slice(1)));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
}
