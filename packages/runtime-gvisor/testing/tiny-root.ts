/** The archive of a root with a shell and the given files. */
import { readFile } from 'node:fs/promises';
import { librariesOf } from '@torpor/host';
import { tar } from '@torpor/host/testing';

export async function tinyRoot(files: Readonly<Record<string, string>> = {}): Promise<Buffer> {
  const { loader, libraries = [] } = (await librariesOf('/bin/sh')) ?? {};
  const programs = ['/bin/sh', ...libraries, ...(loader === undefined ? [] : [loader])];
  const entries = programs.map(async (path) => ({
    name: path.slice(1),
    mode: 0o755,
    content: await readFile(path),
  }));
  return tar(
    ...(await Promise.all(entries)),
    ...Object.entries(files).map(([path, content]) => ({ name: path.slice(1), content })),
  );
}
