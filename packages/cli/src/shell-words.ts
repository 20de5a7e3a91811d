/** Converts command-line words into one line for the sandbox's shell. */

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

/** One word is already a shell line. Several words are a program and its arguments, each of them quoted. */
export function shellLine(words: readonly string[]): string {
  return words.length === 1 ? (words[0] ?? '') : words.map(quoted).join(' ');
}

function quoted(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
