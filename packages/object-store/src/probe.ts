/** Tries out everything that a server does with a store, with one small object: for `torpor doctor`. */
import { randomBytes } from 'node:crypto';
import type { ObjectStore } from './object-store.ts';
import { storeFailure } from './store-failure.ts';

/** Resolves when an object could be written, found, read and deleted. Throws the error of the first step that failed. */
export async function probeObjectStore(store: ObjectStore, signal?: AbortSignal): Promise<void> {
  const key = `probe/${randomBytes(8).toString('hex')}`;
  const sent = randomBytes(64);
  const content = async function* () {
    yield sent;
  };
  try {
    await store.put(key, content(), signal);
    const found = await Array.fromAsync(store.list(key, signal));
    const read = Buffer.concat(await Array.fromAsync(store.get(key, signal)));
    const place = { store: store.url, key: store.location(key) };
    if (!read.equals(sent)) throw storeFailure('lying', place, { why: 'the probe came back changed' });
    if (found.length !== 1) throw storeFailure('failing', place, { why: 'it does not list what it stored' });
  } catch (thrown) {
    await store.delete(key, signal).catch(() => {});
    throw thrown;
  }
  await store.delete(key, signal);
}
