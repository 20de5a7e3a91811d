/** Bytes that are waited for, but not for ever. */
import { AttemptTimeout } from './transport-fault.ts';

/**
 * The same bytes; when somebody waits for the next of them and nothing comes for `ms`, that is a fault of
 * the connection. A reader who takes his time is not counted against it.
 */
export function restless(body: ReadableStream<Uint8Array>, ms: number): ReadableStream<Uint8Array> {
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
    // Closes the connection where it is still open.
    reader.cancel(thrown).catch(() => {});
    throw thrown;
  } finally {
    clearTimeout(timer);
  }
}
