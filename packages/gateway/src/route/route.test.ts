import { describe, expect, it } from 'vitest';
import { type RequestHead, routeOf } from './route.ts';

const ID = 'abcdefghij0123456789';
const OTHER = 'zzzzzzzzzzzzzzzzzzzz';
const FULL = `sbx_${ID}`;
const DOMAIN = 'sbx.localhost';
const HOST = `3000-${ID}.sbx.localhost`;

type Headers = Readonly<Record<string, string | readonly string[]>>;

function ask(headers: Headers, target = '/', more: Partial<RequestHead> = {}) {
  const rawHeaders = Object.entries(headers).flatMap(([name, value]) =>
    [value].flat().flatMap((one) => [name, one]),
  );
  return routeOf({ method: 'GET', target, rawHeaders, ...more }, DOMAIN);
}

const preview = (more: object = {}) => ({
  to: 'preview',
  sandboxId: FULL,
  port: 3000,
  by: 'host',
  path: '/',
  dialect: 'native',
  ...more,
});
const refused = (status: number) => expect.objectContaining({ to: 'refused', status });

describe('the route by host', () => {
  it.each([
    ['a port and a sandbox', HOST],
    ['with the port of the server', `${HOST}:7676`],
    ['with any other port, as behind a forwarded one', `${HOST}:80`],
    ['in upper case', HOST.toUpperCase()],
    ['with a dot at the end', `${HOST}.`],
    ['with a dot and a port', `${HOST}.:7676`],
  ])('%s is the sandbox', (_, host) => {
    expect(ask({ Host: host }, '/a?b=c')).toEqual(preview({ path: '/a?b=c' }));
  });

  it.each([
    ['the server itself', '127.0.0.1:7676'],
    ['an IPv6 literal', '[::1]:7676'],
    ['localhost', 'localhost:7676'],
    ['the domain itself', 'sbx.localhost:7676'],
    ['its api', 'api.sbx.localhost:7676'],
    ['its API in upper case', 'API.SBX.LOCALHOST'],
    ['another host', 'example.com'],
    ['a domain that only ends alike', `3000-${ID}.evilsbx.localhost`],
    ['the domain as a part of another', `3000-${ID}.sbx.localhost.example.com`],
  ])('%s is the API', (_, host) => {
    expect(ask({ Host: host })).toEqual({ to: 'api' });
  });

  it.each([
    ['a user', `me@${HOST}`, 400],
    ['a user and a password', `me:secret@${HOST}`, 400],
    ['a space', `${HOST} evil`, 400],
    ['a comma', `${HOST},127.0.0.1`, 400],
    ['a slash', `${HOST}/127.0.0.1`, 400],
    ['a backslash', `${HOST}\\@x`, 400],
    ['a percent sign', `3000-${ID}%2esbx.localhost`, 400],
    ['letters of another alphabet', `３０００-${ID}.sbx.localhost`, 400],
    ['a letter that only looks like one', `3000-${ID}.sbх.localhost`, 400],
    ['an empty label', `3000-${ID}..sbx.localhost`, 400],
    ['two dots at the end', `${HOST}..`, 400],
    ['an invalid port', `${HOST}:http`, 400],
    ['nothing at all', '', 400],
    ['a name that is too long', `${'a'.repeat(300)}.sbx.localhost`, 400],
    ['an IDN label', 'xn--3000-abc.sbx.localhost', 404],
    ['an extra label', `x.${HOST}`, 404],
    ['no port', `${ID}.sbx.localhost`, 404],
    ['port 0', `0-${ID}.sbx.localhost`, 404],
    ['a port with a zero in front', `03000-${ID}.sbx.localhost`, 404],
    ['a port that is too large', `65536-${ID}.sbx.localhost`, 404],
    ['an id that is too short', '3000-abc.sbx.localhost', 404],
    ['an id with its prefix', `3000-${FULL}.sbx.localhost`, 404],
    ['an address instead of a name', '3000-127.0.0.1.sbx.localhost', 404],
  ])('with %s is refused', (_, host, status) => {
    expect(ask({ Host: host })).toEqual(refused(status));
  });

  it('two Host headers are refused, even equal ones', () => {
    expect(ask({ Host: [HOST, HOST] })).toEqual(refused(400));
    expect(ask({ Host: ['127.0.0.1', HOST] })).toEqual(refused(400));
  });

  it("HTTP/2's :authority counts as the host, and a Host header must agree with it", () => {
    expect(ask({ ':authority': HOST }, '/', { authority: HOST })).toEqual(preview());
    expect(ask({ host: HOST }, '/', { authority: HOST })).toEqual(preview());
    expect(ask({ host: '127.0.0.1' }, '/', { authority: HOST })).toEqual(refused(400));
  });

  it('a request without a host, as HTTP/1.0 allows, is for the API', () => {
    expect(ask({})).toEqual({ to: 'api' });
  });

  it('the domain is configurable', () => {
    const head = { method: 'GET', target: '/', rawHeaders: ['host', `8080-${ID}.Preview.Example.com`] };
    expect(routeOf(head, 'preview.example.com')).toEqual(preview({ port: 8080 }));
  });
});

describe('the target', () => {
  it('may be in absolute form, if it names this host', () => {
    expect(ask({ Host: HOST }, `http://${HOST}/a?b`)).toEqual(preview({ path: '/a?b' }));
    expect(ask({ Host: HOST }, `http://${HOST}:7676`)).toEqual(preview({ path: '/' }));
    expect(ask({ Host: HOST }, `http://${HOST}?b`)).toEqual(preview({ path: '/?b' }));
  });

  it.each([
    ['another sandbox', `http://3000-${OTHER}.sbx.localhost/`],
    ['another host', 'http://127.0.0.1:7676/v1/sandboxes'],
    ['a user', `http://x@${HOST}/`],
    ['another scheme', `ftp://${HOST}/`],
    ['no scheme', `${HOST}/`],
  ])('with %s is refused', (_, target) => {
    expect(ask({ Host: HOST }, target)).toEqual(refused(400));
  });

  it.each(['/a b', '/a\r\nX-Injected: 1', '/a\nb', '/\0', '/\u{1f600}'])(
    '%j cannot end the line it stands in',
    (target) => {
      expect(ask({ Host: HOST }, target)).toEqual(refused(400));
    },
  );

  it.each(['GET / HTTP/1.1\r\nX: y', '', 'G ET'])('with the method %j is refused too', (method) => {
    expect(ask({ Host: HOST }, '/', { method })).toEqual(refused(400));
  });

  it('of an API call cannot name a sandbox', () => {
    expect(ask({ Host: '127.0.0.1' }, `http://${HOST}/`)).toEqual(refused(400));
  });
});

describe('the route by headers', () => {
  const api = '127.0.0.1:7676';
  const e2b = { 'E2b-Sandbox-Id': ID, 'E2b-Sandbox-Port': '3000' };
  const torpor = { 'Torpor-Sandbox': FULL, 'Torpor-Port': '3000' };

  it("accepts E2B's headers and Torpor's, with and without the id prefix", () => {
    expect(ask({ Host: api, ...e2b }, '/x')).toEqual(preview({ by: 'headers', dialect: 'e2b', path: '/x' }));
    expect(ask({ Host: api, ...torpor }, '/x')).toEqual(preview({ by: 'headers', path: '/x' }));
    expect(ask({ Host: api, ...torpor, ...e2b })).toEqual(preview({ by: 'headers', dialect: 'e2b' }));
  });

  it.each([
    ['the port alone', { 'Torpor-Port': '3000' }],
    ['the sandbox alone', { 'E2b-Sandbox-Id': ID }],
    ['an invalid id', { ...torpor, 'Torpor-Sandbox': 'nobody' }],
    ['an invalid port', { ...torpor, 'Torpor-Port': '3000abc' }],
    ['a port with a sign', { ...torpor, 'Torpor-Port': '+3000' }],
    ['the same header twice', { ...torpor, 'Torpor-Port': ['3000', '3000'] }],
    ['two ids that differ', { ...torpor, 'E2b-Sandbox-Id': OTHER, 'E2b-Sandbox-Port': '3000' }],
    ['two ports that differ', { ...torpor, 'E2b-Sandbox-Id': ID, 'E2b-Sandbox-Port': '3001' }],
  ])('refuses %s', (_, headers) => {
    expect(ask({ Host: api, ...headers })).toEqual(refused(400));
  });

  it('must agree with a preview host', () => {
    expect(ask({ Host: HOST, ...e2b })).toEqual(preview({ dialect: 'e2b' }));
    expect(ask({ Host: HOST, 'Torpor-Sandbox': ID })).toEqual(preview());
    expect(ask({ Host: HOST, ...e2b, 'E2b-Sandbox-Id': OTHER })).toEqual(refused(400));
    expect(ask({ Host: HOST, ...e2b, 'E2b-Sandbox-Port': '3001' })).toEqual(refused(400));
  });

  it('is ignored on the API host', () => {
    expect(ask({ Host: 'api.sbx.localhost', ...torpor })).toEqual({ to: 'api' });
  });
});

describe('the route by path', () => {
  const at = (target: string, host = '127.0.0.1') => ask({ Host: host }, target);
  const byPath = (path: string) => preview({ by: 'path', path });

  it.each([
    [`/v1/sandboxes/${ID}/ports/3000/a/b?c=d`, '/a/b?c=d'],
    [`/v1/sandboxes/${FULL}/ports/3000/`, '/'],
    [`/v1/sandboxes/${FULL}/ports/3000`, '/'],
    [`/v1/sandboxes/${FULL}/ports/3000?x=1`, '/?x=1'],
    [`/v1/sandboxes/${FULL}/ports/3000//evil.com/`, '//evil.com/'],
    [`/v1/sandboxes/${FULL}/ports/3000/../../x`, '/../../x'],
  ])("%s is the app's %s", (target, path) => {
    expect(at(target)).toEqual(byPath(path));
    expect(at(target, 'api.sbx.localhost')).toEqual(byPath(path));
  });

  it.each([
    [`/v1/sandboxes/${FULL}/ports`],
    [`/v1/sandboxes/${FULL}/ports/`],
    [`/v1/sandboxes/${FULL}/ports/0/`],
    [`/v1/sandboxes/${FULL}/ports/65536/`],
    [`/v1/sandboxes/${FULL}/ports/3000x/`],
    [`/v1/sandboxes/${FULL}%2Fports/3000/`],
    ['/v1/sandboxes/short/ports/3000/'],
    [`/x/v1/sandboxes/${FULL}/ports/3000/`],
  ])('%s is the API', (target) => {
    expect(at(target)).toEqual({ to: 'api' });
  });

  it('does not apply on a preview host', () => {
    const target = `/v1/sandboxes/${OTHER}/ports/8080/`;
    expect(at(target, HOST)).toEqual(preview({ path: target }));
  });
});

describe('the dialect', () => {
  it.each([
    ['49983', 'e2b'],
    ['49999', 'e2b'],
    ['50005', 'native'],
  ])('of port %s is %s', (port, dialect) => {
    expect(ask({ Host: `${port}-${ID}.sbx.localhost` })).toMatchObject({ to: 'preview', dialect });
    expect(ask({ Host: 'x', 'Torpor-Sandbox': ID, 'Torpor-Port': port })).toMatchObject({ dialect });
  });
});
