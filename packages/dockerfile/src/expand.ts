/** Variables in the arguments of instructions: `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME:+value}`; and quotes. */

export type Lookup = (name: string) => string | undefined;

const VARIABLE = /^\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^}]*))?\})/;
const IN_TEXT = new RegExp(`\\\\\\$|${VARIABLE.source.slice(1)}`, 'g');

/** Removes quotes. Single quotes and backslashes keep a `$` as it is. */
export function expand(text: string, lookUp: Lookup): string {
  return expandWords(text, lookUp, false).join('');
}

/** The same, split at spaces outside quotes. */
export function expandList(text: string, lookUp: Lookup): string[] {
  return expandWords(text, lookUp, true);
}

/** Replaces variables and keeps everything else, also quotes. A backslash keeps a `$` as it is. */
export function expandText(text: string, lookUp: Lookup): string {
  return text.replace(IN_TEXT, (whole, ...groups: string[]) =>
    whole === '\\$' ? '$' : resultOf([whole, ...groups.slice(0, 4)], lookUp),
  );
}

function expandWords(text: string, lookUp: Lookup, split: boolean): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote = '';
  for (let at = 0; at < text.length; ) {
    const letter = text[at] ?? '';
    const rest = text.slice(at);
    if (split && quote === '' && /\s/.test(letter)) {
      if (word !== undefined) words.push(word);
      word = undefined;
      at += 1;
      continue;
    }
    word ??= '';
    const variable = quote === "'" ? null : VARIABLE.exec(rest);
    if (variable !== null) {
      word += resultOf(variable, lookUp);
      at += variable[0].length;
    } else if (letter === '\\' && quote !== "'" && at + 1 < text.length) {
      word += text[at + 1];
      at += 2;
    } else if (letter === quote || (quote === '' && /['"]/.test(letter))) {
      quote = quote === '' ? letter : '';
      at += 1;
    } else {
      word += letter;
      at += 1;
    }
  }
  if (word !== undefined) words.push(word);
  return words;
}

function resultOf([, plain, braced = '', operator, other = '']: readonly string[], lookUp: Lookup): string {
  const value = lookUp(plain ?? braced);
  if (operator === '-') return value ? value : expand(other, lookUp);
  if (operator === '+') return value ? expand(other, lookUp) : '';
  return value ?? '';
}
