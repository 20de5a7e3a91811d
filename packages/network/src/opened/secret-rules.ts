/**
 * Decides which secrets a request gets. Pure functions without I/O.
 *
 * A secret names a host, and may name methods and a path. A sandbox uses a secret as it is, or narrows it further: the
 * request must match both. For a host, an exact name has precedence over `*.` names, and a longer `*.` name over a shorter
 * one; the secrets of other matching hosts are not used then.
 */
import type { UsableSecret } from '@torpor/engine';
import type { SecretUse } from '@torpor/protocol';
import { matchesName, parseRule } from '../rule.ts';

const DEFAULT_PORT = 443;

/** The secrets that connections to this name and port get, in the order of the uses. */
export function secretsForHost(
  secrets: readonly UsableSecret[],
  uses: readonly SecretUse[],
  name: string,
  port: number,
): UsableSecret[] {
  const usable = uses.flatMap((use) => {
    const narrowed = typeof use === 'string' ? { name: use } : use;
    const { host } = narrowed;
    if (host !== undefined && !coversHost(host, name, port)) return [];
    return secrets
      .filter((secret) => secret.name === narrowed.name && coversHost(secret.host, name, port))
      .map((secret) => ({
        secret: narrow(secret, narrowed),
        closeness: closenessOf(host ?? secret.host),
      }));
  });
  const closest = Math.max(...usable.map(({ closeness }) => closeness));
  return usable.filter(({ closeness }) => closeness === closest).map(({ secret }) => secret);
}

/** Whether a connection to this port may need to be opened, as far as is known without a name. */
export function coversSomePort(secrets: readonly UsableSecret[], port: number): boolean {
  return secrets.some(({ host }) => (parseRule(host)?.port ?? DEFAULT_PORT) === port);
}

/** The headers that a request gets, by their names in lower case. The last of several secrets for one header counts. */
export function headersFor(
  secrets: readonly UsableSecret[],
  method: string,
  target: string,
): Map<string, UsableSecret> {
  const [path = ''] = target.split('?', 1);
  const matching = secrets.filter((secret) => coversMethod(secret, method) && coversPath(secret, path));
  return new Map(matching.map((secret) => [secret.header.toLowerCase(), secret]));
}

/** A secret that no request can match any more has an empty list of methods. */
function narrow(secret: UsableSecret, use: Exclude<SecretUse, string>): UsableSecret {
  const { methods = secret.methods, path = secret.path } = use;
  const common =
    secret.methods === null ? methods : (methods ?? []).filter((one) => secret.methods?.includes(one));
  if (path === null || secret.path === null) return { ...secret, methods: common, path: path ?? secret.path };
  if (isBelow(path, secret.path)) return { ...secret, methods: common, path };
  return { ...secret, methods: isBelow(secret.path, path) ? common : [] };
}

function coversHost(host: string, name: string, port: number): boolean {
  const rule = parseRule(host);
  return rule !== undefined && (rule.port ?? DEFAULT_PORT) === port && matchesName(rule, name);
}

/** Greater for a host that matches fewer names. */
function closenessOf(host: string): number {
  const rule = parseRule(host);
  return rule?.kind === 'name' ? Number.MAX_SAFE_INTEGER : host.length;
}

function coversMethod({ methods }: UsableSecret, method: string): boolean {
  return methods === null || methods.includes(method);
}

/** A path that servers may read in several ways does not match a secret with a path. */
function coversPath({ path: wanted }: UsableSecret, path: string): boolean {
  return wanted === null || (isPlain(path) && isBelow(path, wanted));
}

function isBelow(path: string, parent: string): boolean {
  const base = parent.replace(/\/$/, '');
  return path === base || path === parent || path.startsWith(`${base}/`);
}

/** Without dot segments, empty segments, backslashes, parameters of segments, and encoded dots, slashes or percent signs. */
function isPlain(path: string): boolean {
  return !/\/\/|\\|;|\/\.{1,2}(\/|$)|%(2e|2f|5c|25|3b|00)/i.test(path);
}
