/** One word of a shell. */
export function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function quotedAll(words: readonly string[]): string {
  return words.map(quoted).join(' ');
}
