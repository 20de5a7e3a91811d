/**
 * Patterns of `.dockerignore` and COPY, as Docker reads them: `*`, `?` and `[a-z]` stay within one name, `**` stands for any
 * number of directories. Other than in a shell, `*` also stands for names that begin with a dot, and braces are letters.
 */

const WILDCARD = /[*?[]/;

export function isPattern(text: string): boolean {
  return WILDCARD.test(text);
}

/** Whether a whole path matches the pattern. Neither begins with `/`. */
export function pathPattern(pattern: string): (path: string) => boolean {
  const expression = new RegExp(`^${pattern.replace(TOKEN, expressionOf)}$`, 's');
  return (path) => expression.test(path);
}

/** A wildcard, a letter behind a backslash, or a letter. */
const TOKEN = /\*\*\/?|\*|\?|\[\^?(?:\\.|[^\]\\])+\]|\\.|./gs;

function expressionOf(token: string): string {
  switch (token) {
    case '**':
      return '.*';
    case '**/':
      return '(?:.*/)?';
    case '*':
      return '[^/]*';
    case '?':
      return '[^/]';
  }
  if (token.length > 1 && token.startsWith('[')) return `(?!/)${token.replace(/(?<=.)\[/g, '\\[')}`;
  return (token.length > 1 ? token.slice(1) : token).replace(/[\\^$.*+?()[\]{}|/]/, '\\$&');
}
