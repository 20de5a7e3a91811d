/**
 * Closes a stream when its reader leaves the loop. The RPC library keeps a stream open after a `break`. The agent would
 * take that for a slow reader and hold the process back.
 */

type StreamCall<I, O, C extends { signal?: AbortSignal }> = (input: I, options?: C) => AsyncIterable<O>;

export function closeOnReturn<I, O, C extends { signal?: AbortSignal }>(
  call: StreamCall<I, O, C>,
): StreamCall<I, O, C> {
  return (input, options) => {
    const leave = new AbortController();
    const signal = options?.signal ? AbortSignal.any([options.signal, leave.signal]) : leave.signal;
    const stream = call(input, { ...options, signal } as C);
    return {
      [Symbol.asyncIterator]() {
        const messages = stream[Symbol.asyncIterator]();
        return {
          next: () => messages.next(),
          async return() {
            leave.abort();
            // The RPC library clears the timer of the call's deadline only when the stream is read after the abort. The
            // timer would otherwise keep the whole call in memory until the deadline, which may be days away.
            messages.next().catch(() => {});
            return { done: true, value: undefined };
          },
        };
      },
    };
  };
}
