/**
 * Routes a request: to the API, to a port of a sandbox, or to an error. A pure function of the request's head, so that
 * its test can be a table of attacks.
 */
import { parseSandboxId, type SandboxId } from '@torpor/protocol';
import { hostNameOf } from './host-name.ts';

/** A request's head as the client sent it; names and values alternate in `rawHeaders`. */
export interface RequestHead {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  /** The `:authority` of HTTP/2. */
  readonly authority?: string | undefined;
}

export interface PreviewRoute {
  readonly to: 'preview';
  readonly sandboxId: SandboxId;
  readonly port: number;
  /** Which part of the request names the sandbox. */
  readonly by: 'host' | 'headers' | 'path';
  /** Path and query as the app gets them. */
  readonly path: string;
  /** Which API's statuses and bodies the gateway's own responses have. */
  readonly dialect: 'native' | 'e2b';
}

export type Route =
  | { readonly to: 'api' }
  | PreviewRoute
  | { readonly to: 'refused'; readonly status: 400 | 404; readonly why: string };

/** The ports of the agent and of the code interpreter. Only E2B's clients use them. */
export const AGENT_PORT = 49_983;
const INTERPRETER_PORT = 49_999;

const LABEL = /^([1-9]\d{0,4})-([a-z0-9]{20})$/;
const PATH = /^\/v1\/sandboxes\/((?:sbx_)?[a-z0-9]{20})\/ports\/([1-9]\d{0,4})(?=[/?]|$)/;
const PORT = /^[1-9]\d{0,4}$/;
/** Text that is copied into a request head must not contain a line break. Node's parser checks it as well. */
const METHOD = /^[A-Za-z-]{1,32}$/;
const VISIBLE = /^[\x21-\x7e\x80-\xff]+$/;

interface Named {
  readonly sandboxId: SandboxId;
  readonly port: number;
}

/** `domain` is in lower case and has no port. */
export function routeOf(request: RequestHead, domain: string): Route {
  const found = headersOf(request);
  if (found === undefined) return refused('A header that names the host or the sandbox is repeated.');
  const named = namedByHeaders(found);
  if (named === 'wrong') {
    return refused('The headers that name a sandbox and its port contradict each other, or half is missing.');
  }
  // An HTTP/1.0 request may have no Host; the parser refuses an HTTP/1.1 request without one.
  const host = found.host === undefined ? '' : hostNameOf(found.host);
  if (host === undefined) return refused('The Host header is not the name of a host.');
  const path = pathOf(request.target, host);
  if (path === undefined || !METHOD.test(request.method))
    return refused('The target of the request is not a path of this host.');

  if (host.endsWith(`.${domain}`)) {
    const label = host.slice(0, -domain.length - 1);
    if (label === 'api') return byPath(path) ?? { to: 'api' };
    const own = namedByLabel(label);
    if (own === undefined) {
      return { to: 'refused', status: 404, why: `The name ${label} does not name a port of a sandbox.` };
    }
    if (disagrees(own, named)) return refused('The headers name another sandbox or port than the host does.');
    return preview(own, 'host', path, named?.dialect);
  }
  if (named !== undefined) {
    const { sandboxId, port, dialect } = named;
    if (sandboxId === undefined || port === undefined) return refused('Name both the sandbox and its port.');
    return preview({ sandboxId, port }, 'headers', path, dialect);
  }
  return byPath(path) ?? { to: 'api' };
}

/** The path form is for clients that cannot set a host. The rest of the path goes to the app. */
function byPath(path: string): PreviewRoute | undefined {
  const found = PATH.exec(path);
  const sandboxId = parseSandboxId(found?.[1] ?? '');
  const port = portOf(found?.[2]);
  if (found === null || sandboxId === undefined || port === undefined) return undefined;
  const rest = path.slice(found[0].length);
  return preview({ sandboxId, port }, 'path', rest.startsWith('/') ? rest : `/${rest}`, undefined);
}

function preview(
  { sandboxId, port }: Named,
  by: PreviewRoute['by'],
  path: string,
  dialect: 'native' | 'e2b' = 'native',
): PreviewRoute {
  const isE2bPort = port === AGENT_PORT || port === INTERPRETER_PORT;
  return { to: 'preview', sandboxId, port, by, path, dialect: isE2bPort ? 'e2b' : dialect };
}

function refused(why: string): Route {
  return { to: 'refused', status: 400, why };
}

interface Found {
  host?: string;
  'e2b-sandbox-id'?: string;
  'e2b-sandbox-port'?: string;
  'torpor-sandbox'?: string;
  'torpor-port'?: string;
}

const ROUTING: ReadonlySet<string> = new Set([
  'host',
  'e2b-sandbox-id',
  'e2b-sandbox-port',
  'torpor-sandbox',
  'torpor-port',
]);

/** Undefined when a routing header is repeated: two parsers could choose different ones. */
function headersOf({ rawHeaders, authority }: RequestHead): Found | undefined {
  const found: Found = authority === undefined ? {} : { host: authority };
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] as string).toLowerCase() as keyof Found;
    if (!ROUTING.has(name)) continue;
    const value = rawHeaders[i + 1] as string;
    const sameAsAuthority = name === 'host' && authority !== undefined && value === authority;
    if (found[name] !== undefined && !sameAsAuthority) return undefined;
    found[name] = value;
  }
  return found;
}

type NamedByHeaders = { readonly dialect: 'native' | 'e2b' } & {
  readonly [K in keyof Named]: Named[K] | undefined;
};

/** Undefined when the request has no such headers. */
function namedByHeaders(found: Found): NamedByHeaders | 'wrong' | undefined {
  const ids = [found['e2b-sandbox-id'], found['torpor-sandbox']].filter((text) => text !== undefined);
  const ports = [found['e2b-sandbox-port'], found['torpor-port']].filter((text) => text !== undefined);
  if (ids.length === 0 && ports.length === 0) return undefined;
  const [sandboxId, otherId] = ids.map(parseSandboxId);
  const [port, otherPort] = ports.map(portOf);
  const isWrong =
    (ids.length > 0 && sandboxId === undefined) ||
    (ports.length > 0 && port === undefined) ||
    (ids.length > 1 && otherId !== sandboxId) ||
    (ports.length > 1 && otherPort !== port);
  if (isWrong) return 'wrong';
  const isE2b = found['e2b-sandbox-id'] !== undefined || found['e2b-sandbox-port'] !== undefined;
  return { sandboxId, port, dialect: isE2b ? 'e2b' : 'native' };
}

function namedByLabel(label: string): Named | undefined {
  const [, port, id = ''] = LABEL.exec(label) ?? [];
  const number = portOf(port);
  const sandboxId = parseSandboxId(id);
  return number === undefined || sandboxId === undefined ? undefined : { sandboxId, port: number };
}

function disagrees(own: Named, named: NamedByHeaders | undefined): boolean {
  if (named === undefined) return false;
  return (
    (named.sandboxId !== undefined && named.sandboxId !== own.sandboxId) ||
    (named.port !== undefined && named.port !== own.port)
  );
}

function portOf(text: string | undefined): number | undefined {
  if (text === undefined || !PORT.test(text)) return undefined;
  const port = Number(text);
  return port <= 65_535 ? port : undefined;
}

/** The path and query of a request target. A target in absolute form must name the request's own host. */
function pathOf(target: string, host: string): string | undefined {
  if (!VISIBLE.test(target)) return undefined;
  if (target.startsWith('/') || target === '*') return target;
  const [, authority = '', rest = ''] = /^https?:\/\/([^/?#]*)([^#]*)$/i.exec(target) ?? [];
  if (hostNameOf(authority) !== host) return undefined;
  return rest.startsWith('/') ? rest : `/${rest}`;
}
