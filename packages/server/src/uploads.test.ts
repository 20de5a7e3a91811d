import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openUploads } from './uploads.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-uploads-'));
});
afterEach(() => rm(directory, { recursive: true }));

const limit = { bytes: 10, tooLarge: () => new TorporError('invalid_request', 'too large') };
const unhurried = new AbortController().signal;

describe('an upload', () => {
  it('that is interrupted is a client error and leaves nothing', async () => {
    const source = new Readable({ read: () => {} });
    const receiving = (await openUploads(directory)).receive(source, limit, unhurried);
    source.push('half');
    source.destroy();
    await expect(receiving).rejects.toMatchObject({ code: 'invalid_request' });
    expect(await readdir(directory)).toEqual([]);
  });

  it('that is too large leaves nothing', async () => {
    const receiving = (await openUploads(directory)).receive(
      Readable.from([Buffer.alloc(11)]),
      limit,
      unhurried,
    );
    await expect(receiving).rejects.toMatchObject({ message: 'too large' });
    expect(await readdir(directory)).toEqual([]);
  });
});
