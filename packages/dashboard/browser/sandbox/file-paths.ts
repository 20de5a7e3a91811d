/** Paths of a sandbox. Names are untrusted: they may have any byte but `/`. */
export function joined(directory: string, name: string): string {
  return directory.endsWith('/') ? `${directory}${name}` : `${directory}/${name}`;
}

export function parentOf(path: string): string {
  return path.replace(/\/+[^/]*\/*$/, '') || '/';
}

/** The directories above a path, from the root down, each with the path that opens it. */
export function crumbsOf(path: string): { readonly name: string; readonly path: string }[] {
  const names = path.split('/').filter(Boolean);
  return [
    { name: '/', path: '/' },
    ...names.map((name, index) => ({ name, path: `/${names.slice(0, index + 1).join('/')}` })),
  ];
}

/** The text of a file, or undefined when the bytes are not text. */
export function textOf(bytes: Uint8Array): string | undefined {
  if (bytes.subarray(0, 8_192).includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** A name for people: control characters and marks that change the direction of text are shown as codes. */
export function shownName(name: string): string {
  return name.replace(/[\p{Cc}\p{Cf}]/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}
