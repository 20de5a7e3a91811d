/** Settles like `work`, or rejects with the signal's reason as soon as the signal aborts. `work` itself continues. */
export function rejectOnAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const onAbort = () => reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  return promise;
}
