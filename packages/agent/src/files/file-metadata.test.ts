import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FileMetadata, metadataOfHeaders } from './file-metadata.ts';

let directory = '';
let store = '';

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-metadata-'));
  store = join(directory, 'state', 'metadata.json');
});

afterEach(() => rm(directory, { recursive: true }));

describe('metadata of files', () => {
  it('survives a restart of the agent', async () => {
    await new FileMetadata(store).set('/a', { key: 'value' });
    expect(await new FileMetadata(store).of('/a')).toEqual({ key: 'value' });
  });

  it('is found under its exact path, whatever other paths exist', async () => {
    const names = ['/', '/\\', '/"', '/\n'];
    for (const kept of names) {
      const metadata = new FileMetadata(store);
      for (const name of names) await metadata.set(name, {});
      await metadata.set('/', { name: '/' });
      await metadata.set(kept, { name: kept });
      expect(await new FileMetadata(store).of(kept)).toEqual({ name: kept });
    }
  });

  it('creates no file while there is no metadata', async () => {
    await new FileMetadata(store).set('/a', {});
    await expect(readFile(store)).rejects.toThrow();
  });

  it('moves with its directory, and not with one of a similar name', async () => {
    const metadata = new FileMetadata(store);
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
    const metadata = new FileMetadata(store);
    await Promise.all(
      Array.from({ length: 20 }, (_, index) => metadata.set(`/${index}`, { n: String(index) })),
    );
    const again = new FileMetadata(store);
    for (let index = 0; index < 20; index += 1)
      expect(await again.of(`/${index}`)).toEqual({ n: String(index) });
  });

  it.each(['{"half":', '{}', 'null', '[["/a"]]', '[["/a",{"key":7}]]', '[["/a",null]]'])(
    'starts empty when its file is damaged: %s',
    async (content) => {
      const file = join(directory, 'damaged.json');
      await writeFile(file, content);
      const metadata = new FileMetadata(file);
      expect(await metadata.of('/a')).toEqual({});
      await metadata.set('/a', { key: 'value' });
      expect(await new FileMetadata(file).of('/a')).toEqual({ key: 'value' });
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
