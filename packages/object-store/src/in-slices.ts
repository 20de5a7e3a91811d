/** The body of a request as a stream of slices: to send a whole piece of an upload takes long, so it gives way meanwhile. */
import { Readable } from 'node:stream';
import type { GiveWay } from '@torpor/host';

const SLICE_BYTES = 256 * 1024;

/** Gives way before each slice. The stream never fails: a request that is aborted ends by its own signal. */
export function inSlices(bytes: Uint8Array, giveWay: GiveWay): Readable {
  const slices = async function* () {
    for (let at = 0; at < bytes.byteLength; at += SLICE_BYTES) {
      await giveWay().catch(() => {});
      yield bytes.subarray(at, at + SLICE_BYTES);
    }
  };
  return Readable.from(slices(), { objectMode: false });
}
