/** Finds the dynamic loader and the shared libraries that a program uses on this host. */
import { TorporError } from '@torpor/protocol';
import { runProgram } from './run-program.ts';

export interface Libraries {
  /** Undefined for a library, which has no loader of its own. */
  readonly loader: string | undefined;
  readonly libraries: readonly string[];
}

/** Undefined for a static program. Only for trusted files, because `ldd` runs the loader that the file names. */
export async function librariesOf(file: string): Promise<Libraries | undefined> {
  const { status, stdout, stderr } = await runProgram('ldd', [file]);
  if (status === 0) return parseLdd(stdout);
  if (/not a dynamic executable|Not a valid dynamic program/.test(stderr + stdout)) return undefined;
  throw new TorporError('internal', `ldd cannot list the libraries of ${file}: ${stderr.trim()}`);
}

export function parseLdd(text: string): Libraries | undefined {
  if (/statically linked/.test(text)) return undefined;
  const missing = /^\s*(\S+) => not found/m.exec(text);
  if (missing) throw new TorporError('internal', `The library ${missing[1]} is not installed.`);
  const found = [...text.matchAll(/^\s*(?:\S+ => )?(\/\S+) \(0x[0-9a-f]+\)$/gm)].map(
    (match) => match[1] ?? '',
  );
  const isLoader = (path: string) => /\/ld-[^/]*$/.test(path);
  return { loader: found.find(isLoader), libraries: found.filter((path) => !isLoader(path)) };
}
