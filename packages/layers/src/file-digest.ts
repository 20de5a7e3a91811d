/**
 * The digest of one file's content.
 *
 * A sparse file can have a size that would take forever to read, at no cost to the sandbox that made it. Its digest covers
 * only the blocks that are not all zeros, each preceded by its offset. So holes are skipped, and written zeros give the same
 * digest as a hole.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import {
  ByteReader,
  type GiveWay,
  givingWay,
  nextTarHeader,
  streamProgram,
  type TarHeader,
} from '@torpor/host';
import type { DeepPaths } from './deep-paths.ts';
import type { TreeEntry } from './tree-listing.ts';

export type DigestKind = 'sha256' | 'sparse-sha256';

/** Hashing runs on the main thread, about a millisecond for each chunk. Other requests are served between two chunks. */
const CHUNK = 1024 * 1024;
const BLOCK = 4096;
const ZEROS = Buffer.alloc(BLOCK);
/** In a smaller file, reading the holes costs less than starting a program that skips them. */
const SMALLEST_SPARSE = 16n * 1024n * 1024n;

export interface FileDigest {
  readonly hex: string;
  /** How many bytes were read. */
  readonly read: number;
}

export function digestKindOf({ size, blocks }: TreeEntry): DigestKind {
  return size >= SMALLEST_SPARSE && blocks * 512n * 2n < size ? 'sparse-sha256' : 'sha256';
}

export function digestFile(
  entry: TreeEntry,
  kind: DigestKind,
  deepPaths: DeepPaths,
  signal?: AbortSignal,
  giveWay: GiveWay = async () => {},
): Promise<FileDigest> {
  const digest = kind === 'sha256' ? digestWhole : digestBlocks;
  return digest(entry, deepPaths, giveWay, signal);
}

async function digestWhole(
  entry: TreeEntry,
  deepPaths: DeepPaths,
  giveWay: GiveWay,
  signal?: AbortSignal,
): Promise<FileDigest> {
  const hash = createHash('sha256');
  const path = await deepPaths.to(entry.path);
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  let read = 0;
  try {
    const chunk = Buffer.allocUnsafe(Number(entry.size < CHUNK ? entry.size + 1n : CHUNK));
    for (;;) {
      signal?.throwIfAborted();
      await giveWay();
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      read += bytesRead;
    }
  } finally {
    await file.close();
  }
  return { hex: hash.digest('hex'), read };
}

/** `tar` finds the holes: it writes a list of the other segments before the content. Node has no call for that. */
async function digestBlocks(
  entry: TreeEntry,
  deepPaths: DeepPaths,
  giveWay: GiveWay,
  signal?: AbortSignal,
): Promise<FileDigest> {
  const hash = createHash('sha256');
  const { from, rest } = await deepPaths.shorten(entry.path);
  const args = ['-c', '--sparse', '--format=pax', '-C', from, '--null', '--verbatim-files-from', '-T', '-'];
  const input = [Buffer.from(`./${rest}\0`, 'latin1')];
  const archive = new ByteReader(givingWay(streamProgram('tar', args, { signal, input }), giveWay));
  let read = 0;
  try {
    const header = await nextTarHeader(archive);
    if (header === undefined) throw new Error(`tar did not write ${JSON.stringify(entry.path)}.`);
    read = await eachBlock(await segmentsOf(header, archive), archive, (index, block) => {
      if (!block.equals(ZEROS)) hash.update(`${index}:`).update(block);
    });
    await archive.finish();
  } finally {
    await archive.close();
  }
  return { hex: hash.digest('hex'), read };
}

/**
 * Blocks are aligned to the start of the file, and a block that a segment covers in part is filled with zeros. So the digest
 * does not depend on how large the holes of a file system are.
 */
async function eachBlock(
  segments: readonly Segment[],
  archive: ByteReader,
  work: (index: number, block: Buffer) => void,
): Promise<number> {
  const block = Buffer.alloc(BLOCK);
  let index = 0;
  let read = 0;
  for (const { at, length } of segments) {
    for (let place = at; place < at + length; ) {
      const within = place % BLOCK;
      if (index !== (place - within) / BLOCK) {
        work(index, block);
        block.fill(0);
        index = (place - within) / BLOCK;
      }
      const piece = await archive.take(Math.min(BLOCK - within, at + length - place));
      if (piece.length === 0) throw new Error('The archive of a sparse file ends early.');
      piece.copy(block, within);
      place += piece.length;
      read += piece.length;
    }
  }
  work(index, block);
  return read;
}

interface Segment {
  readonly at: number;
  readonly length: number;
}

/** The list has one decimal number on each line, and is padded to blocks: the count, then offset and length of each segment. */
async function segmentsOf(header: TarHeader, archive: ByteReader): Promise<Segment[]> {
  if (header.records.get('GNU.sparse.major') !== '1') return [{ at: 0, length: header.size }];
  let text = '';
  const numbers = () => text.split('\n').slice(0, -1);
  const isWhole = () => numbers().length > 0 && numbers().length > 2 * Number(numbers()[0]);
  while (!isWhole()) {
    const block = await archive.take(512);
    if (block.length === 0) throw new Error('The archive of a sparse file ends early.');
    text += block.toString('latin1').replace(/\0+$/, '');
  }
  const [count = 0, ...places] = numbers().map(Number);
  return Array.from({ length: count }, (_, i) => ({
    at: places[2 * i] ?? 0,
    length: places[2 * i + 1] ?? 0,
  }));
}
