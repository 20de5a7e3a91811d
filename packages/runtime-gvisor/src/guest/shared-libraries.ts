/** What a program needs to be loaded: the dynamic loader, and the libraries it would find on this machine. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { TorporError } from '@torpor/protocol';

const run = promisify(execFile);

export interface Libraries {
  /** Absent for a library, which the program it is loaded into has one for. */
  readonly loader: string | undefined;
  readonly libraries: readonly string[];
}

/** Undefined for a program that needs none. `ldd` runs the file's own loader: only for files we trust. */
export async function librariesOf(file: string): Promise<Libraries | undefined> {
  try {
    return parseLdd((await run('ldd', [file], { env: { PATH: process.env['PATH'], LC_ALL: 'C' } })).stdout);
  } catch (thrown) {
    const { stderr = '', stdout = '' } = thrown as { stderr?: string; stdout?: string };
    if (/not a dynamic executable|Not a valid dynamic program/.test(stderr + stdout)) return undefined;
    throw new TorporError('internal', `ldd cannot tell which libraries ${file} needs.`, { cause: thrown });
  }
}

export function parseLdd(text: string): Libraries | undefined {
  if (/statically linked/.test(text)) return undefined;
  const missing = /^\s*(\S+) => not found/m.exec(text);
  if (missing) throw new TorporError('internal', `The library ${missing[1]} is not on this machine.`);
  const found = [...text.matchAll(/^\s*(?:\S+ => )?(\/\S+) \(0x[0-9a-f]+\)$/gm)].map(
    (match) => match[1] ?? '',
  );
  const isLoader = (path: string) => /\/ld-[^/]*$/.test(path);
  return { loader: found.find(isLoader), libraries: found.filter((path) => !isLoader(path)) };
}
