/** Words of our command line as one line for the sandbox's shell. */

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

/** One word is a line for the shell already; several are a program with its arguments, each kept whole. */
export function shellLine(words: readonly string[]): string {
  return words.length === 1 ? (words[0] ?? '') : words.map(quoted).join(' ');
}

function quoted(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
