import { FakeProvider } from '@torpor/builds/testing';
import { systemClock } from '@torpor/engine';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiDocument, routesOf } from '../testing/document-requests.ts';
import { testBuilds } from '../testing/test-builds.ts';
import { testGateway } from '../testing/test-gateway.ts';
import { type TestServer, testServer } from '../testing/test-server.ts';

/** Every id of the default organisation, by its placeholder in the paths and bodies below. */
const ids: Record<string, string> = {};
let server: TestServer;
let before: string;
let url: string;

const TABLES: Readonly<Record<string, string>> = {
  sandboxes: 'org = $1',
  events: 'org = $1',
  checkpoints: 'org = $1',
  operations: 'org = $1',
  templates: 'org = $1',
  sessions: 'org = $1',
  session_turns: 'session_id IN (SELECT id FROM sessions WHERE org = $1)',
  build_jobs: 'org = $1',
  build_events: 'job_id IN (SELECT id FROM build_jobs WHERE org = $1)',
  api_keys: 'org = $1',
  orgs: 'id = $1',
  webhooks: 'org = $1',
  secrets: 'org = $1',
  jobs: 'sandbox_id IN (SELECT id FROM sandboxes WHERE org = $1)',
};

/** All rows of the default organisation. */
async function snapshotRows(): Promise<string> {
  const rows: Record<string, unknown> = {};
  for (const [table, condition] of Object.entries(TABLES))
    rows[table] = await server.world.db.query(`SELECT * FROM ${table} WHERE ${condition}`, ['default']);
  return JSON.stringify(rows);
}

beforeAll(async () => {
  server = await testServer({
    wrapApp: (ctx) => ({
      gateway: testGateway(ctx),
      builds: testBuilds(ctx, new FakeProvider(systemClock)),
    }),
  });
  url = await server.listen();
  const post = async (url: string, body: object = {}) => {
    const answer = await server.ask('POST', url, { body });
    expect(answer.statusCode, answer.body).toBeLessThan(300);
    return answer.json();
  };
  ids['sandbox'] = await server.create({ name: 'secret', metadata: { a: 'b' }, preview: 'private' });
  const background = { command: 'sleep 30', background: true };
  ids['process'] = (await post(`/v1/sandboxes/${ids['sandbox']}/exec`, background)).process.id;
  const paused = await post(`/v1/sandboxes/${ids['sandbox']}/pause`);
  ids['checkpoint'] = paused.checkpoint.id;
  ids['operation'] = paused.operation.id;
  await post(`/v1/sandboxes/${ids['sandbox']}/checkpoints`, { name: 'kept' });
  ids['template'] = (await post('/v1/templates', { name: 'secret-template', from: ids['checkpoint'] })).name;
  ids['key'] = (await post('/v1/keys', { name: 'secret-key' })).id;
  const hook = { url: 'https://hooks.example.com/secret-path' };
  ids['webhook'] = (await post('/v1/webhooks', hook)).id;
  ids['secret'] = 'SECRET_OF_DEFAULT';
  const secret = { host: 'api.example.com', header: 'X-Key', value: 'secret-value' };
  const set = await server.ask('PUT', `/v1/secrets/${ids['secret']}`, { body: secret });
  expect(set.statusCode, set.body).toBe(200);
  const program = { command: 'cat' };
  const opened = await post('/v1/sessions', { key: 'secret-thread', program, spawn: false });
  ids['session'] = opened.session.id;
  const [turn] = await server.world.db.transaction((tx) =>
    tx.query<{ id: string }>(
      `INSERT INTO session_turns (id, session_id, seq, input, state, output_end, tries, try_at, created_at, ended_at)
       VALUES ('turn_aaaaaaaaaaaaaaaaaaaa', $1, 1, 'secret-input', 'failed', 0, 0, 0, 0, 1) RETURNING id`,
      [ids['session'] ?? ''],
    ),
  );
  ids['turn'] = turn?.id ?? '';
  ids['job'] = (await post('/api/generation/start', { project_id: 'secret-project', goal: 'g' })).job_id;
  before = await snapshotRows();
});
afterAll(() => server.dispose());

const fill = (text: string) => text.replace(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? name);

/** The placeholder for each path, in place of the document's `{id}`. */
function pathOf(path: string): string {
  const thing = {
    sandboxes: 'sandbox',
    checkpoints: 'checkpoint',
    operations: 'operation',
    templates: 'template',
    sessions: 'session',
    keys: 'key',
    webhooks: 'webhook',
    secrets: 'secret',
    generation: 'job',
    jobs: 'job',
  }[path.split('/')[2] ?? ''];
  return path
    .replace(/\{(id|name)\}/, path.startsWith('/v1/orgs') ? 'default' : `{${thing}}`)
    .replace('{port}', '3000');
}

/** Queries and bodies of routes that refuse an empty request. */
const WELL_FORMED: Readonly<Record<string, { readonly query?: string; readonly body?: object }>> = {
  'GET /v1/checkpoints': { query: '?name=kept' },
  'POST /v1/sandboxes/{id}/retention': { body: { deletePausedAfterSeconds: 5 } },
  'POST /v1/sandboxes/{id}/timeout': { body: { timeoutSeconds: 5 } },
  'PUT /v1/sandboxes/{id}/network': { body: {} },
  'POST /v1/sandboxes/{id}/rollback': { body: { checkpointId: '{checkpoint}' } },
  'POST /v1/sandboxes/{id}/exec': { body: { command: 'true' } },
  'POST /v1/sandboxes/{id}/preview-links': { body: { port: 3000 } },
  'GET /v1/sandboxes/{id}/files': { query: '?path=a' },
  'PUT /v1/sandboxes/{id}/files': { query: '?path=a' },
  'DELETE /v1/sandboxes/{id}/files': { query: '?path=a' },
  'POST /v1/sessions/{id}/turns': { body: { input: 'x' } },
  'POST /v1/webhooks/{id}/replay': { body: { fromPosition: 1 } },
  'POST /v1/checkpoints/{id}/names': { body: { name: 'mine' } },
  'PATCH /v1/templates/{name}': { body: { public: true } },
  'PATCH /v1/orgs/{id}': { body: { quotas: { sandboxes: 0 } } },
};

/** Upgrades cannot be injected; terminal.test.ts tests them with a key of another organisation. */
const SOCKETS = ['GET /v1/sandboxes/{id}/terminal', 'GET /v1/sandboxes/{id}/exec'];

/** Creates a thing of its own organisation under the name; `secrets.test.ts` tests that the other stays as it is. */
const CREATING = ['PUT /v1/secrets/{name}'];

/** Requests that name a thing of the default organisation elsewhere than in the path. */
type Asked = readonly [method: string, url: string, body?: object];

const NAMING: readonly Asked[] = [
  ['POST', '/v1/sandboxes', { from: '{checkpoint}' }],
  ['POST', '/v1/sandboxes', { template: '{template}' }],
  ['POST', '/v1/sandboxes', { network: { secrets: ['{secret}'] } }],
  ['POST', '/v1/templates', { name: 'x', from: '{checkpoint}' }],
  ['POST', '/v1/sessions', { key: 'k', program: { command: 'cat' }, sandbox: { from: '{checkpoint}' } }],
  ['POST', '/api/generation/start', { project_id: 'secret-project', goal: 'g', previous_job_id: '{job}' }],
  ['POST', '/v1/orgs', { name: 'mine' }],
  ['POST', '/v1/keys?orgId=default', { name: 'x' }],
  ['POST', '/v1/keys', { name: 'x', operator: true }],
  ['GET', '/v1/keys?orgId=default'],
  ['GET', '/v1/usage?orgId=default'],
  ['GET', '/v1/audit?orgId=default'],
  ['POST', '/v1/admin/fsck', {}],
  ['GET', '/v1/admin/disk'],
  ['GET', '/v1/admin/awake'],
  ['GET', '/v1/admin/machine'],
  ['GET', '/v1/admin/doctor'],
];

/** Routes about all organisations. They have tests of their own. */
const OPERATORS_ONLY = [
  '/v1/nodes',
  '/metrics',
  '/v1/admin/disk',
  '/v1/admin/awake',
  '/v1/admin/machine',
  '/v1/admin/doctor',
];

/** Requests of E2B's API about one thing of the default organisation. */
const E2B: readonly Asked[] = [
  ['GET', '/sandboxes/{sandbox}'],
  ['DELETE', '/sandboxes/{sandbox}'],
  ['POST', '/sandboxes/{sandbox}/pause'],
  ['POST', '/sandboxes/{sandbox}/connect', { timeout: 5 }],
  ['POST', '/v2/sandboxes/{sandbox}/connect', { timeout: 5 }],
  ['POST', '/sandboxes/{sandbox}/resume', { timeout: 5 }],
  ['POST', '/sandboxes/{sandbox}/fork', {}],
  ['POST', '/sandboxes/{sandbox}/snapshots', {}],
  ['POST', '/sandboxes/{sandbox}/timeout', { timeout: 5 }],
  ['POST', '/sandboxes/{sandbox}/refreshes', { duration: 5 }],
  ['PUT', '/sandboxes/{sandbox}/network', {}],
  ['GET', '/sandboxes/{sandbox}/metrics'],
  ['GET', '/sandboxes/{sandbox}/logs'],
  ['GET', '/v2/sandboxes/{sandbox}/logs'],
  ['POST', '/sandboxes', { templateID: '{template}' }],
  ['POST', '/v2/sandboxes', { templateID: '{template}' }],
  ['POST', '/v2/sandboxes', { templateID: '{checkpoint}' }],
  ['GET', '/templates/{template}'],
  ['GET', '/templates/{template}/tags'],
  ['GET', '/templates/aliases/{template}'],
  ['DELETE', '/templates/{template}'],
];
const E2B_LISTS = ['/sandboxes', '/v2/sandboxes', '/snapshots', '/templates', '/v2/templates'];

async function refuses(...[method, url, body]: Asked): Promise<void> {
  const answer = await server.ask(method as 'GET', fill(url), {
    key: server.keys.other,
    ...(body === undefined ? {} : { body: JSON.parse(fill(JSON.stringify(body))) }),
  });
  expect([403, 404], `${method} ${url}: ${answer.statusCode} ${answer.body}`).toContain(answer.statusCode);
  hidesEverything(answer.body, `${method} ${fill(url)} ${fill(JSON.stringify(body ?? ''))}`);
}

/** No id or name of the default organisation is in the answer, except what the request named itself. */
function hidesEverything(text: string, asked: string): void {
  for (const id of [...Object.values(ids), 'secret-input', 'secret-thread', 'secret-key']) {
    if (!asked.includes(id)) expect(text).not.toContain(id);
  }
}

/** Fastify prints a tree: each line continues the path of the nearest line above it that is further left. */
function routesIn(tree: string): string[] {
  const above: string[] = [];
  return tree.split('\n').flatMap((line) => {
    const [, indent = '', part = '', methods] = /^([│ ]*)[├└]── (\S*)(?: \(([A-Z, ]+)\))?/.exec(line) ?? [];
    const depth = indent.length / 4;
    above.length = depth;
    above.push(part);
    const path = above.join('');
    return methods === undefined ? [] : methods.split(', ').map((method) => `${method} ${path}`);
  });
}

describe("a key of another organisation on the default organisation's things", () => {
  it('is refused by every route of the OpenAPI document that names one in its path (R104, R44)', async () => {
    const document: ApiDocument = (await server.ask('GET', '/v1/openapi.json', { key: null })).json();
    const routes = routesOf(document).filter(({ path }) => path.includes('{'));
    expect(routes.length).toBeGreaterThan(40);
    for (const { method, path } of routes) {
      const name = `${method} ${path}`;
      if (SOCKETS.includes(name) || CREATING.includes(name)) continue;
      const { query = '', body } = WELL_FORMED[name] ?? {};
      const needsBody = ['POST', 'PATCH'].includes(method);
      await refuses(method, pathOf(path) + query, body ?? (needsBody ? {} : undefined));
    }
  });

  it('is in no list of the OpenAPI document (R104)', async () => {
    const document: ApiDocument = (await server.ask('GET', '/v1/openapi.json', { key: null })).json();
    const lists = routesOf(document).filter(({ method, path }) => method === 'GET' && !path.includes('{'));
    for (const { path } of lists) {
      if (OPERATORS_ONLY.includes(path)) continue;
      const { query = '' } = WELL_FORMED[`GET ${path}`] ?? {};
      const answer = await server.ask('GET', path + query, { key: server.keys.other });
      expect(answer.statusCode, path).toBe(200);
      hidesEverything(answer.body, '');
      for (const item of answer.json().items ?? [])
        expect(item.id, `${path} lists the default organisation`).not.toBe('default');
    }
  });

  it.for(NAMING)('is refused where the request names the thing elsewhere: %s %s %j (R104)', (asked) =>
    refuses(...asked),
  );

  it.for(E2B)("is refused by E2B's API: %s %s %j (R104)", (asked) => refuses(...asked));

  it.each(E2B_LISTS)("is in no list of E2B's API: GET %s (R104)", async (path) => {
    const answer = await server.ask('GET', path, { key: server.keys.other });
    expect(answer.statusCode).toBe(200);
    hidesEverything(answer.body, '');
  });

  it("is not in E2B's metrics or in the metrics of the server (R104)", async () => {
    const key = server.keys.other;
    const figures = await server.ask('GET', `/sandboxes/metrics?sandbox_ids=${ids['sandbox']}`, { key });
    expect(figures.json().sandboxes).toEqual({});
    const headers = { 'x-forwarded-for': '10.0.0.1' };
    for (const asked of [key, server.keys.user])
      expect((await server.ask('GET', '/metrics', { key: asked, headers })).statusCode).toBe(403);
    expect((await server.ask('GET', '/metrics', { headers })).statusCode).toBe(200);
  });

  it.each([
    ['the path of a port', '/v1/sandboxes/{sandbox}/ports/3000/', {}],
    ['the headers of a port', '/', { 'torpor-sandbox': '{sandbox}', 'torpor-port': '3000' }],
    ["E2B's headers", '/', { 'e2b-sandbox-id': '{sandbox}', 'e2b-sandbox-port': '49983' }],
  ] as const)('neither reaches nor wakes a private preview with %s (R104)', async (_, path, headers) => {
    const filled = Object.entries(headers).map(([name, value]) => [name, fill(value)]);
    const answer = await fetch(`${url}${fill(path)}`, {
      headers: { ...Object.fromEntries(filled), 'x-api-key': server.keys.other },
    });
    expect([401, 403, 404]).toContain(answer.status);
  });

  it.each(['get_sandbox', 'list_files', 'pause_sandbox', 'kill_sandbox', 'list_checkpoints'])(
    'is not found by the tool %s of /mcp (R104)',
    async (name) => {
      const answer = await fetch(`${url}/mcp?allSandboxes=true`, {
        method: 'POST',
        headers: {
          'x-api-key': server.keys.other,
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
        },
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: { name, arguments: { sandbox: ids['sandbox'] } },
        }),
      });
      expect(await answer.text()).toContain('not_found: ');
    },
  );

  it("covers every route of E2B's API (R104)", () => {
    const known = [...E2B.map(([method, path]) => `${method} ${path}`), ...E2B_LISTS.map((p) => `GET ${p}`)];
    const covered = new Set(known.map((name) => name.replace(/\{\w+\}/g, ':id')));
    for (const other of ['GET /sandboxes/metrics', 'POST /v2/sandboxes', 'POST /sandboxes'])
      covered.add(other);
    const found = routesIn(server.app.server.printRoutes());
    expect(found.length).toBeGreaterThan(60);
    const isElsewhere = (name: string) =>
      /^HEAD |^\w+ \/(v1|api|health|metrics|mcp)\b|^\w+ \/(volumes|secrets|files)\b/.test(name);
    const missing = found.filter((name) => !isElsewhere(name) && !covered.has(name));
    // These routes always answer 501.
    expect(missing.filter((name) => !/templates/.test(name))).toEqual([]);
  });

  it('has changed nothing (R104)', async () => {
    expect(await snapshotRows()).toBe(before);
  });
});
