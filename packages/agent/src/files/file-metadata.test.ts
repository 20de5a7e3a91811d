import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { extendedAttributes, xattrLibrary } from './extended-attributes.ts';
import { FileMetadata, metadataOfHeaders } from './file-metadata.ts';

let directory = '';
let store = '';

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-metadata-'));
  store = join(directory, 'state', 'metadata.json');
});

afterEach(() => rm(directory, { recursive: true }));

/** As on a file system without extended attributes. */
const none = extendedAttributes(() => undefined);

describe('metadata of files', () => {
  it('survives a restart of the agent', async () => {
    await new FileMetadata(store, none).set('/a', { key: 'value' });
    expect(await new FileMetadata(store, none).of('/a')).toEqual({ key: 'value' });
  });

  it('is found under its exact path, whatever other paths exist', async () => {
    const names = ['/', '/\\', '/"', '/\n'];
    for (const kept of names) {
      const metadata = new FileMetadata(store, none);
      for (const name of names) await metadata.set(name, {});
      await metadata.set('/', { name: '/' });
      await metadata.set(kept, { name: kept });
      expect(await new FileMetadata(store, none).of(kept)).toEqual({ name: kept });
    }
  });

  it('creates no file while there is no metadata', async () => {
    await new FileMetadata(store, none).set('/a', {});
    await expect(readFile(store)).rejects.toThrow();
  });

  it('moves with its directory, and not with one of a similar name', async () => {
    const metadata = new FileMetadata(store, none);
    await metadata.set('/dir/a', { n: '1' });
    await metadata.set('/directory', { n: '2' });
    await metadata.moved('/dir', '/new');
    expect(await metadata.of('/new/a')).toEqual({ n: '1' });
    expect(await metadata.of('/dir/a')).toEqual({});
    expect(await metadata.of('/directory')).toEqual({ n: '2' });
    await metadata.moved('/new', undefined);
    expect(await metadata.of('/new/a')).toEqual({});
  });

  it('keeps the metadata of concurrent writers', async () => {
    const metadata = new FileMetadata(store, none);
    await Promise.all(
      Array.from({ length: 20 }, (_, index) => metadata.set(`/${index}`, { n: String(index) })),
    );
    const again = new FileMetadata(store, none);
    for (let index = 0; index < 20; index += 1)
      expect(await again.of(`/${index}`)).toEqual({ n: String(index) });
  });

  it.each(['{"half":', '{}', 'null', '[["/a"]]', '[["/a",{"key":7}]]', '[["/a",null]]'])(
    'starts empty when its file is damaged: %s',
    async (content) => {
      const file = join(directory, 'damaged.json');
      await writeFile(file, content);
      const metadata = new FileMetadata(file, none);
      expect(await metadata.of('/a')).toEqual({});
      await metadata.set('/a', { key: 'value' });
      expect(await new FileMetadata(file, none).of('/a')).toEqual({ key: 'value' });
    },
  );
});

describe('metadata in headers', () => {
  it('is read from headers with the prefix', () => {
    expect(metadataOfHeaders({ 'x-metadata-author': 'me', 'content-type': 'x' })).toEqual({ author: 'me' });
  });

  it('needs a name and has a size limit', () => {
    expect(() => metadataOfHeaders({ 'x-metadata-': 'x' })).toThrow(
      expect.objectContaining({ code: 'invalid_request' }),
    );
    expect(() => metadataOfHeaders({ 'x-metadata-a': 'x'.repeat(10_000) })).toThrow('at most');
  });
});

describe.skipIf(xattrLibrary() === undefined)('metadata in extended attributes', () => {
  let file = '';
  let metadata: FileMetadata;
  beforeEach(async () => {
    file = join(directory, 'a');
    await writeFile(file, 'x');
    metadata = new FileMetadata(store, extendedAttributes(xattrLibrary));
  });

  it('is replaced as a whole, and follows a file that another program moves', async () => {
    await metadata.set(file, { one: 'ü', two: '2' });
    await metadata.set(file, { one: '1' });
    const moved = join(directory, 'b');
    await rename(file, moved);
    await writeFile(file, 'new');
    expect([await metadata.of(moved), await metadata.of(file)]).toEqual([{ one: '1' }, {}]);
    expect(await xattrLibrary()?.listAttributes(moved)).toEqual(['user.e2b.one']);
    await expect(readFile(store)).rejects.toMatchObject({ code: 'ENOENT' });
    await metadata.set(moved, {});
    expect(await metadata.of(moved)).toEqual({});
  });

  it('is kept beside the file when it does not fit, and in one place only', async () => {
    const large = { one: '1', large: 'x'.repeat(70_000) };
    await metadata.set(file, large);
    expect(await metadata.of(file)).toEqual(large);
    expect(await xattrLibrary()?.listAttributes(file)).toEqual([]);
    await metadata.set(file, { small: '1' });
    expect(await metadata.of(file)).toEqual({ small: '1' });
    expect(await new FileMetadata(store, none).of(file)).toEqual({});
  });
});
