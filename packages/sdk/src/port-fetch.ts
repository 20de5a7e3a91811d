/** Sends a request to a port of a sandbox. The request wakes a sandbox that sleeps. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { ReadOptions } from './json-calls.ts';
import type { Transport } from './transport.ts';

/** As for `fetch`, but redirects are not followed. The app never sees the key for Torpor. */
export interface PortRequest extends ReadOptions {
  readonly method?: string | undefined;
  readonly headers?: RequestInit['headers'] | undefined;
  readonly body?: RequestInit['body'] | undefined;
}

/** A short response of known length is part of the attempt; a longer one is passed on as it comes. */
const SHORT_BYTES = 1024 * 1024;

/** Resolves with the app's response, whatever its status. */
export async function fetchPort(
  transport: Transport,
  id: SandboxId,
  port: number,
  path: string,
  { method = 'GET', ...rest }: PortRequest,
): Promise<Response> {
  const base = `/v1/sandboxes/${encodeURIComponent(id)}/ports/${port}`;
  const rooted = `${base}${path.startsWith('/') ? path : `/${path}`}`;
  // A path with `..` could reach the API itself, which would accept the key.
  if (!transport.address(rooted).href.startsWith(`${transport.address(base).href}/`)) {
    throw new TorporError('invalid_request', `The path "${path}" leads out of port ${port}.`, {
      sandboxId: id,
    });
  }
  return transport.send({
    method,
    path: rooted,
    // `Authorization` belongs to the app.
    keyHeader: 'x-api-key',
    whole: isShort,
    ...rest,
  });
}

function isShort({ headers }: Response): boolean {
  const length = headers.get('content-length');
  return length !== null && Number(length) <= SHORT_BYTES;
}
