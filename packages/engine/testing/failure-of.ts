import { type ErrorBody, TorporError } from '@torpor/protocol';

/** The wire form of the typed error that a call must end in. */
export async function failureOf(call: Promise<unknown>): Promise<ErrorBody> {
  const thrown = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof TorporError) return thrown.toBody();
  throw new Error('A TorporError was expected.', { cause: thrown });
}
