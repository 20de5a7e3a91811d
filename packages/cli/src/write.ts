/** Writes bytes, and waits while the reader is slow. */
import { once } from 'node:events';

export async function write(stream: NodeJS.WritableStream, bytes: Uint8Array | string): Promise<void> {
  if (!stream.write(bytes)) await once(stream, 'drain');
}
