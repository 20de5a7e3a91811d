/** Finds the dynamic loader and the shared libraries that a program uses on this host. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { TorporError } from '@torpor/protocol';

const run = promisify(execFile);

export interface Libraries {
  /** Undefined for a library, which has no loader of its own. */
  readonly loader: string | undefined;
  readonly libraries: readonly string[];
}

/** Undefined for a static program. Only for trusted files, because `ldd` runs the loader that the file names. */
export async function librariesOf(file: string): Promise<Libraries | undefined> {
  try {
    return parseLdd((await run('ldd', [file], { env: { PATH: process.env['PATH'], LC_ALL: 'C' } })).stdout);
  } catch (thrown) {
    const { stderr = '', stdout = '' } = thrown as { stderr?: string; stdout?: string };
    if (/not a dynamic executable|Not a valid dynamic program/.test(stderr + stdout)) return undefined;
    throw new TorporError('internal', `ldd cannot list the libraries of ${file}.`, { cause: thrown });
  }
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
