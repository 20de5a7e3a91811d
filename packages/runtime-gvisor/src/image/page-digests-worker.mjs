/** A thread that digests pages of files. `page-digests.ts` sends it orders. */
import { hash } from 'node:crypto';
import { readSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';

const buffer = Buffer.allocUnsafeSlow(1024 * 1024);

/** @param {import('./page-digests.ts').DigestOrder} order */
function digest({ id, descriptor, bytes, pageBytes, digestBytes, nextPiece }) {
  const next = new Int32Array(nextPiece);
  // Several threads share one order: each takes the next piece until none is left.
  for (;;) {
    const at = Atomics.add(next, 0, 1) * buffer.length;
    if (at >= bytes) return;
    const length = Math.min(buffer.length, bytes - at);
    fill(descriptor, at, length);
    const digests = Buffer.alloc(Math.ceil(length / pageBytes) * digestBytes);
    for (let from = 0; from < length; from += pageBytes) {
      const page = buffer.subarray(from, Math.min(from + pageBytes, length));
      digests.write(hash('sha256', page, 'binary'), (from / pageBytes) * digestBytes, digestBytes, 'latin1');
    }
    // Copied: memory that both threads see would stay until this thread collects its garbage, which it has hardly any of.
    parentPort?.postMessage({ id, page: at / pageBytes, digests });
  }
}

/**
 * @param {number} descriptor
 * @param {number} at
 * @param {number} length
 */
function fill(descriptor, at, length) {
  for (let read = 0; read < length; ) {
    const count = readSync(descriptor, buffer, read, length - read, at + read);
    if (count === 0) throw new Error('The memory image is shorter than it was.');
    read += count;
  }
}

parentPort?.on('message', (order) => {
  try {
    digest(order);
    parentPort?.postMessage({ id: order.id });
  } catch (thrown) {
    parentPort?.postMessage({ id: order.id, error: thrown });
  }
});
