import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type DataKeys, makeDataKeys, readDataKeys } from './data-keys.ts';
import { EncryptedObjects } from './encrypted-objects.ts';
import { openObjectStore } from './open-object-store.ts';
import { faultOf } from './store-failure.ts';
import { Throttle } from './throttle.ts';

const LIMITS = { callMs: 5_000, stallMs: 5_000, minBytesPerSecond: 1 };
const MIB = 1024 ** 2;

let top: string;
let keys: DataKeys;
const at = (...names: string[]) => join(top, ...names);

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-encryption-'));
  keys = await makeDataKeys(at('data-key'));
});
afterEach(() => rm(top, { recursive: true }));

const open = async (withKeys = keys) =>
  new EncryptedObjects(await openObjectStore(`file://${top}`, {}, LIMITS), withKeys, new Throttle(0));

async function* one(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}

async function store(key: string, bytes: Buffer) {
  return (await open()).put(key, one(bytes));
}

async function read(key: string, expected: { bytes: number; sha256: string }, withKeys = keys) {
  return Buffer.concat(await Array.fromAsync((await open(withKeys)).get(key, expected)));
}

const faultOfRead = (...args: Parameters<typeof read>) =>
  read(...args).then(
    () => undefined,
    (thrown: unknown) => faultOf(thrown),
  );

describe('an encrypted object', () => {
  it.each([0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])('of %i bytes is read as it was written', async (size) => {
    const bytes = randomBytes(size);
    const stored = await store('objects/a', bytes);
    expect(stored.storedBytes).toBe((await readFile(at('objects/a'))).length);
    expect((await read('objects/a', stored)).equals(bytes)).toBe(true);
  });

  it('shows nothing of its content to the store', async () => {
    const secret = Buffer.from('correct horse battery staple '.repeat(100));
    await store('objects/a', secret);
    expect((await readFile(at('objects/a'))).includes('correct horse')).toBe(false);
  });

  const damages: readonly [string, (file: Buffer) => Buffer][] = [
    ['a changed byte', (file) => file.fill(file.readUInt8(MIB) ^ 1, MIB, MIB + 1)],
    ['a changed header', (file) => file.fill(file.readUInt8(30) ^ 1, 30, 31)],
    ['its end cut off at a chunk', (file) => file.subarray(0, 76 + MIB + 16)],
    ['nothing but its header', (file) => file.subarray(0, 76)],
    ['no bytes', () => Buffer.alloc(0)],
    [
      'two chunks exchanged',
      (file) =>
        Buffer.concat([
          file.subarray(0, 76),
          file.subarray(76 + MIB + 16, 76 + 2 * (MIB + 16)),
          file.subarray(76, 76 + MIB + 16),
          file.subarray(76 + 2 * (MIB + 16)),
        ]),
    ],
  ];
  it.each(damages)('is refused with %s', async (_, damage) => {
    const stored = await store('objects/a', randomBytes(2 * MIB + 5));
    await writeFile(at('objects/a'), damage(await readFile(at('objects/a'))));
    expect(await faultOfRead('objects/a', stored)).toBe('lying');
  });

  it('is refused in the place of another object', async () => {
    await store('objects/a', randomBytes(10));
    const other = await store('objects/b', randomBytes(10));
    await writeFile(at('objects/b'), await readFile(at('objects/a')));
    expect(await faultOfRead('objects/b', other)).toBe('lying');
  });

  it('is refused when it is whole but not the one that was recorded', async () => {
    const before = await store('objects/a', randomBytes(10));
    const after = await store('objects/a', randomBytes(11));
    expect(await faultOfRead('objects/a', before)).toBe('half_written');
    expect(await faultOfRead('objects/a', { ...after, sha256: before.sha256 })).toBe('lying');
  });
});

describe('the data keys', () => {
  it('are in a file that only its owner can read', async () => {
    expect((await stat(at('data-key'))).mode & 0o777).toBe(0o600);
  });

  it('decrypt older objects after a new key was put first, and not without the old one', async () => {
    const bytes = randomBytes(100);
    const stored = await store('objects/a', bytes);
    const old = await readFile(at('data-key'), 'utf8');
    await writeFile(at('data-key'), `# new\n${randomBytes(32).toString('hex')}\n${old}`);
    const rotated = (await readDataKeys(at('data-key'))) as DataKeys;
    expect(rotated.current.id).not.toBe(stored.keyId);
    expect((await read('objects/a', stored, rotated)).equals(bytes)).toBe(true);
    expect(await faultOfRead('objects/a', stored, await makeDataKeys(at('other-key')))).toBe('wrong_key');
  });

  it.each(['', 'not a key\n', `${'a'.repeat(63)}\n`])('are refused when the file holds %j', async (text) => {
    await writeFile(at('data-key'), text);
    await expect(readDataKeys(at('data-key'))).rejects.toMatchObject({ code: 'invalid_request' });
  });
});
