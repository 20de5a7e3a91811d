/** Uploads that are too large for memory: size-limited files in the data directory, removed after use. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type ErrorCode, TorporError } from '@torpor/protocol';

interface Upload {
  readonly path: string;
  readonly sha256: string;
  remove(): Promise<void>;
}

export interface Uploads {
  /** Throws `tooLarge()` as soon as the limit is exceeded. A failed upload leaves no file. */
  receive(source: AsyncIterable<Buffer>, limit: UploadLimit, signal: AbortSignal): Promise<Upload>;
}

interface UploadLimit {
  readonly bytes: number;
  tooLarge(): TorporError;
}

const STORAGE_ERRORS: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EROFS: 'storage_readonly',
};

/** Node's error codes for a client that went away. */
const DISCONNECTED: readonly unknown[] = ['ECONNRESET', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'];

/** Only this server uses `directory`. Files that an earlier server left are removed. */
export async function openUploads(directory: string): Promise<Uploads> {
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true, mode: 0o700 });
  let count = 0;
  return {
    receive: async (source, limit, signal) => {
      const path = join(directory, String(++count));
      const remove = () => rm(path, { force: true });
      const hash = createHash('sha256');
      const bounded = async function* () {
        let bytes = 0;
        for await (const chunk of source) {
          bytes += chunk.length;
          if (bytes > limit.bytes) throw limit.tooLarge();
          hash.update(chunk);
          yield chunk;
        }
      };
      try {
        await pipeline(bounded, createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
      } catch (thrown) {
        await remove();
        throw toTorporError(thrown);
      }
      return { path, sha256: hash.digest('hex'), remove };
    },
  };
}

function toTorporError(thrown: unknown): unknown {
  const errno = (thrown as NodeJS.ErrnoException | null)?.code;
  const code = STORAGE_ERRORS[String(errno)];
  if (code !== undefined) return new TorporError(code, 'The upload cannot be stored.', { cause: thrown });
  if (DISCONNECTED.includes(errno))
    return new TorporError('invalid_request', 'The upload was interrupted.', { cause: thrown });
  return thrown;
}
