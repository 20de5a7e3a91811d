/**
 * The proof that a request was answered before anything inside the sandbox saw it, so that sending it again
 * does it once (R65). Whoever writes such an answer vouches for it: the gateway for what it held, and an app
 * that says so itself can only mislead its own callers.
 */
import { isErrorCode } from '@torpor/protocol';

/** Far more than an error of ours needs; whatever is longer is something else. */
const MAX_BYTES = 64 * 1024;

/** Looks at a copy; the response keeps its body. Whatever is not plainly a proof is none. */
export async function provesNotDispatched(response: Response): Promise<boolean> {
  const { headers } = response;
  const length = headers.get('content-length');
  const isJson = /^application\/json\b/i.test(headers.get('content-type') ?? '');
  if (!isJson || length === null || Number(length) > MAX_BYTES) return false;
  return saysNotDispatched(await response.clone().text());
}

function saysNotDispatched(text: string): boolean {
  try {
    const { error } = JSON.parse(text) as { error?: { code?: unknown; details?: { dispatched?: unknown } } };
    return typeof error?.code === 'string' && isErrorCode(error.code) && error.details?.dispatched === false;
  } catch {
    return false;
  }
}
