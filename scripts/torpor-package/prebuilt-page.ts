/** Takes the place of `@torpor/dashboard` in the published package: the page is built already, and is only read. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PageFile, PageFiles } from '@torpor/dashboard';

/** Relative to this file's place in the package. */
const PREBUILT = join(import.meta.dirname, '../dist');

/** `page.json`, which the packager writes: a `PageFiles` without the bytes. */
export interface PrebuiltPage extends Omit<PageFiles, 'files'> {
  readonly files: readonly { readonly name: string; readonly type: string }[];
}

export async function buildPage(): Promise<PageFiles> {
  const { files, ...names } = JSON.parse(await readFile(join(PREBUILT, 'page.json'), 'utf8')) as PrebuiltPage;
  const loaded = files.map(async ({ name, type }): Promise<[string, PageFile]> => {
    const read = (extension: string) => readFile(join(PREBUILT, `${name}${extension}`));
    const [bytes, gzip, br] = await Promise.all([read(''), read('.gzip'), read('.br')]);
    return [name, { type, bytes, gzip, br }];
  });
  return { ...names, files: new Map(await Promise.all(loaded)) };
}
