/** A request to a server inside a sandbox, by its port. It wakes the sandbox if it sleeps. */
import type { SandboxId } from '@torpor/protocol';
import type { Transport } from './transport.ts';

export interface PortRequest {
  readonly method?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: RequestInit['body'] | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A short answer of known length is part of the attempt; a long or endless one is passed on as it comes. */
const SHORT_BYTES = 1024 * 1024;

/** The answer as it is, whatever its status: what an error means is the app's to say. */
export function fetchPort(
  transport: Transport,
  id: SandboxId,
  port: number,
  path: string,
  { method = 'GET', ...rest }: PortRequest,
): Promise<Response> {
  const rooted = path.startsWith('/') ? path : `/${path}`;
  return transport.send({
    method,
    path: `/v1/sandboxes/${encodeURIComponent(id)}/ports/${port}${rooted}`,
    whole: isShort,
    ...rest,
  });
}

function isShort({ headers }: Response): boolean {
  const length = headers.get('content-length');
  return length !== null && Number(length) <= SHORT_BYTES;
}
