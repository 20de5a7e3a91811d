/** What a registry asks for in `WWW-Authenticate`. */

export type Challenge =
  | { readonly scheme: 'basic' }
  | { readonly scheme: 'bearer'; readonly realm: string; readonly service?: string | undefined };

const PARAMETER = /([a-zA-Z]+)=(?:"([^"]*)"|([^\s,]+))/g;

/** Undefined for schemes that registries do not use. */
export function parseChallenge(header: string | undefined): Challenge | undefined {
  const [, scheme = '', rest = ''] = /^\s*([A-Za-z]+)\s*(.*)$/.exec(header ?? '') ?? [];
  if (scheme.toLowerCase() === 'basic') return { scheme: 'basic' };
  if (scheme.toLowerCase() !== 'bearer') return undefined;
  const parameters = new Map(
    [...rest.matchAll(PARAMETER)].map(([, key = '', quoted, plain]) => [key.toLowerCase(), quoted ?? plain]),
  );
  const realm = parameters.get('realm');
  return realm === undefined ? undefined : { scheme: 'bearer', realm, service: parameters.get('service') };
}
