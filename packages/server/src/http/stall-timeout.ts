/** Passes bytes through, and fails when no bytes move for `stallMs`. Neither a client nor a sandbox can hold it open. */
import { pipeline, type Readable, Transform } from 'node:stream';
import type { Clock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export function withStallTimeout(source: Readable, clock: Clock, stallMs: number): Readable {
  const done = new AbortController();
  let movedAt = clock.monotonic();
  const through = new Transform({
    transform(chunk, _, callback) {
      movedAt = clock.monotonic();
      callback(null, chunk);
    },
  });
  const watch = async () => {
    for (;;) {
      const left = stallMs - (clock.monotonic() - movedAt);
      if (left <= 0) break;
      await clock.sleep(left, done.signal);
    }
    through.destroy(new TorporError('timeout', `No bytes moved for ${stallMs} ms.`));
  };
  watch().catch(() => {});
  through.once('close', () => done.abort());
  // `pipeline` passes errors to the reader of `through`.
  pipeline(source, through, () => {});
  return through;
}
