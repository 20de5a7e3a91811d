/** A thread that digests pages of files. `page-digests.ts` sends it orders. */
import { hash } from 'node:crypto';
import { readSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';

const buffer = Buffer.allocUnsafeSlow(1024 * 1024);

/** @param {import('./page-digests.ts').DigestOrder} order */
function digest({ descriptor, bytes, pageBytes, digestBytes, shared, nextPiece }) {
  const digests = new Uint8Array(shared);
  const next = new Int32Array(nextPiece);
  // Several threads share one order: each takes the next piece until none is left.
  for (let at = 0; at < bytes; ) {
    at = Atomics.add(next, 0, 1) * buffer.length;
    const length = Math.min(buffer.length, bytes - at);
    for (let read = 0; read < length; ) {
      const count = readSync(descriptor, buffer, read, length - read, at + read);
      if (count === 0) throw new Error('The memory image is shorter than it was.');
      read += count;
    }
    for (let from = 0; from < length; from += pageBytes) {
      const page = buffer.subarray(from, Math.min(from + pageBytes, length));
      const whole = hash('sha256', page, 'buffer');
      digests.set(whole.subarray(0, digestBytes), ((at + from) / pageBytes) * digestBytes);
    }
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
