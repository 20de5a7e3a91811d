/** A request to a server inside a sandbox, by its port. It wakes the sandbox if it sleeps. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { ReadOptions } from './json-calls.ts';
import type { Transport } from './transport.ts';

/** As for `fetch`. Redirects are answers too, and the key for Torpor is never among what the app sees. */
export interface PortRequest extends ReadOptions {
  readonly method?: string | undefined;
  readonly headers?: RequestInit['headers'] | undefined;
  readonly body?: RequestInit['body'] | undefined;
}

/** A short answer of known length is part of the attempt; a long or endless one is passed on as it comes. */
const SHORT_BYTES = 1024 * 1024;

/** The answer as it is, whatever its status: what an error means is the app's to say. */
export async function fetchPort(
  transport: Transport,
  id: SandboxId,
  port: number,
  path: string,
  { method = 'GET', ...rest }: PortRequest,
): Promise<Response> {
  const door = `/v1/sandboxes/${encodeURIComponent(id)}/ports/${port}`;
  const rooted = `${door}${path.startsWith('/') ? path : `/${path}`}`;
  // Dots in a path lead upwards, and above the port is the API itself, which would take the key.
  if (!transport.address(rooted).href.startsWith(`${transport.address(door).href}/`)) {
    throw new TorporError('invalid_request', `The path "${path}" leads out of port ${port}.`, {
      sandboxId: id,
    });
  }
  return transport.send({
    method,
    path: rooted,
    // `Authorization` is for the app.
    keyHeader: 'x-api-key',
    whole: isShort,
    ...rest,
  });
}

function isShort({ headers }: Response): boolean {
  const length = headers.get('content-length');
  return length !== null && Number(length) <= SHORT_BYTES;
}
