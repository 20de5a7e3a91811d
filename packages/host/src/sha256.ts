import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';

/** The sha256 of a text or of bytes, in hexadecimal digits. */
export function sha256Of(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

const CHUNK = 256 * 1024;

/**
 * The sha256 of the content of a file, in hexadecimal digits. All chunks are read into one buffer: a stream allocates a new
 * one for each chunk, and so much memory outside of the heap makes V8 collect the whole heap again and again.
 */
export async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  const file = await open(path);
  try {
    const chunk = Buffer.allocUnsafeSlow(CHUNK);
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, CHUNK, null);
      if (bytesRead === 0) return hash.digest('hex');
      hash.update(chunk.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}
