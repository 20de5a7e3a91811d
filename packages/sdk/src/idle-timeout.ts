/** Bounds how long a reader waits for the next bytes of a stream. */
import { AttemptTimeout } from './transport-fault.ts';

/**
 * The same bytes. When a read waits for `ms` without any byte, it fails with `AttemptTimeout`, a transport fault. The
 * time between two reads does not count.
 */
export function withIdleTimeout(body: ReadableStream<Uint8Array>, ms: number): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await nextWithin(reader, ms);
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}

async function nextWithin(reader: ReadableStreamDefaultReader<Uint8Array>, ms: number) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const tooLong = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new AttemptTimeout(ms)), ms);
  });
  try {
    return await Promise.race([reader.read(), tooLong]);
  } catch (thrown) {
    // Closes the connection if it is still open.
    reader.cancel(thrown).catch(() => {});
    throw thrown;
  } finally {
    clearTimeout(timer);
  }
}
