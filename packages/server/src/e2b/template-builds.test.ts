import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { StepCommand } from '@torpor/build-steps';
import { tar } from '@torpor/host/testing';
import { type BuildOrder, DEFAULT_TEMPLATE_BUILD_SETTINGS, TemplateBuilds } from '@torpor/template-builds';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../../testing/test-server.ts';
import { connectThrough } from '../cluster/follow-sandboxes.ts';
import type { AppContext } from '../route-context.ts';
import { killSandboxesOf, stepSandboxes } from '../template-builds/engine-step-sandboxes.ts';

let server: TestServer;
let directory: string;
let builds: TemplateBuilds;
/** What the steps ran. The sandboxes of this server have no users and no root, so commands are only recorded. */
let ran: (StepCommand & { readonly files: readonly string[] })[];
/** Ends the commands that do not end by themselves. */
let release: () => void;

function recordingBuilds({ engine, db, clock, ids, images }: AppContext, serverId = 'test'): TemplateBuilds {
  return new TemplateBuilds({
    engine,
    db,
    clock,
    serverId,
    directory,
    report: () => {},
    uuid: randomUUID,
    settings: { ...DEFAULT_TEMPLATE_BUILD_SETTINGS, readyEveryMs: 10, perOrg: 2 },
    image: (_, reference, credentials) =>
      images.inRegistry(reference, { credentials, mayUseServerCredentials: false }),
    sandboxes: (options) => {
      const real = stepSandboxes(
        { engine, connect: connectThrough(engine), clock, ids, lifetimeMs: 60_000 },
        options,
      );
      const files: string[] = [];
      return {
        ...real,
        write: async (_, path) => void files.push(path),
        run: async (_, command) => {
          ran.push({ ...command, files: files.splice(0) });
          options.output('stdout', `ran ${command.command}\n`);
          if (command.command.includes('hang'))
            await new Promise<void>((resolve, reject) => {
              release = resolve;
              options.signal.addEventListener('abort', () => reject(options.signal.reason));
            });
          return command.command.includes('fail') ? 3 : 0;
        },
      };
    },
    killSandboxes: (org, id) => killSandboxesOf(engine, org, id),
  });
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-builds-'));
  server = await testServer({
    wrapApp: (ctx) => {
      builds = recordingBuilds(ctx);
      return { templateBuilds: builds };
    },
  });
  await server.world.engine.heartbeat();
});
afterAll(async () => {
  await builds.stop();
  await server.dispose();
  await rm(directory, { recursive: true });
});
beforeEach(() => {
  ran = [];
});

const ask = async (
  method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH',
  url: string,
  body?: unknown,
  key: string | null = server.keys.default,
) => {
  const headers: Record<string, string> = key === null ? {} : { 'x-api-key': `e2b_${key}` };
  if (Buffer.isBuffer(body)) headers['content-type'] = 'application/octet-stream';
  const given = body === undefined ? {} : { body };
  const answer = await server.ask(method, url, { key: null, headers, ...given });
  return { status: answer.statusCode, body: answer.body === '' ? undefined : answer.json() };
};

async function newBuild(name = 'app', more: object = {}): Promise<string> {
  const { status, body } = await ask('POST', '/v3/templates', { name, ...more });
  expect(status).toBe(202);
  return body.buildID as string;
}

async function ended(id: string, template = 'app') {
  for (;;) {
    const { body } = await ask('GET', `/templates/${template}/builds/${id}/status`);
    if (body.status !== 'building') return body;
    await sleep(10);
  }
}

const start = (id: string, body: object, template = 'app') =>
  ask('POST', `/v2/templates/${template}/builds/${id}`, { fromTemplate: 'base', ...body });

const build = async (body: object, name = 'app', more: object = {}) => {
  const id = await newBuild(name, more);
  expect(await start(id, body)).toMatchObject({ status: 202 });
  return { id, ...(await ended(id)) };
};
const run = (command: string, force = false) => ({ type: 'RUN', args: [command], force });

async function uploaded(hash: string, ...names: string[]): Promise<void> {
  const { status, body } = await ask('GET', `/templates/app/files/${hash}`);
  expect([status, body.present]).toEqual([201, false]);
  const { pathname, search } = new URL(body.url);
  const archive = tar(...names.map((name) => ({ name, content: name })));
  expect(await ask('PUT', `${pathname}${search}`, archive, null)).toMatchObject({ status: 200 });
}

describe('a build', () => {
  it('runs its steps with their user, directory and environment, and shows its log from an offset', async () => {
    await uploaded('1'.repeat(64), 'one.txt');
    const steps = [
      // biome-ignore lint/suspicious/noTemplateCurlyInString: variables of the build.
      { type: 'ENV', args: ['A', '1', 'B', '${A}$A'] },
      { type: 'USER', args: ['builder'] },
      { type: 'WORKDIR', args: ['work'] },
      run('first'),
      { type: 'RUN', args: ['second', 'root'] },
      { type: 'COPY', args: ['one.txt', 'to/', '', '0640'], filesHash: '1'.repeat(64) },
    ];
    const { id, status, logEntries } = await build({ steps });
    expect(status).toBe('ready');
    const [account, workdir, first, second, copy] = ran;
    expect([account?.command, workdir?.command]).toEqual([
      expect.stringContaining('useradd'),
      expect.stringContaining("mkdir '/home/user/work'"),
    ]);
    const env = { A: '1', B: '11' };
    expect(first).toMatchObject({ command: 'first', user: 'builder', cwd: '/home/user/work', env });
    expect(second).toMatchObject({ command: 'second', user: 'root' });
    expect(copy?.command).toMatch(/chown -R -h 'builder:'.*chmod -R 0640.*'\/home\/user\/work\/to\/'/s);
    expect(copy?.files).toHaveLength(1);
    expect(logEntries[0]).toMatchObject({ level: 'info', step: 'base', message: 'FROM base' });
    const rest = await ask('GET', `/templates/app/builds/${id}/status?logsOffset=${logEntries.length - 1}`);
    expect(rest.body.logEntries).toEqual([logEntries.at(-1)]);
    const { body: back } = await ask('GET', `/templates/app/builds/${id}/logs?direction=backward&limit=1`);
    expect(back.logs).toEqual([expect.objectContaining({ message: 'Build finished' })]);
    expect(await server.world.engine.templateDefinition('default', 'app')).toMatchObject({
      env,
      user: 'builder',
      workdir: '/home/user/work',
    });
  });

  it('runs only changed steps and those behind them, and with force all from there on', async () => {
    const commands = () => ran.splice(0).map(({ command }) => command);
    await build({ steps: [run('a'), run('b')] });
    expect(commands()).toEqual(['a', 'b']);
    const again = await build({ steps: [run('a'), run('b')] });
    expect(commands()).toEqual([]);
    expect(again.logEntries.map(({ message }: { message: string }) => message)).toContain(
      'CACHED [2/2] RUN b',
    );
    await build({ steps: [run('a'), run('c')] });
    expect(commands()).toEqual(['c']);
    await build({ steps: [run('a', true), run('b')] });
    expect(commands()).toEqual(['a', 'b']);
    await build({ steps: [run('a'), run('b')], force: true });
    expect(commands()).toEqual(['a', 'b']);
  });

  it('gives its result all tags at once; tags can be listed, moved and removed', async () => {
    const { id: first } = await build({ steps: [run('v1')] }, 'app:v1', { tags: ['stable'] });
    const { id: second } = await build({ steps: [run('v2')] }, 'app');
    const tags = async () =>
      Object.fromEntries(
        (await ask('GET', '/templates/app/tags')).body.map((one: { tag: string; buildID: string }) => [
          one.tag,
          one.buildID,
        ]),
      );
    expect(await tags()).toEqual({ default: second, stable: first, v1: first });
    const moved = await ask('POST', '/templates/tags', { target: 'app', tags: ['stable'] });
    expect(moved).toMatchObject({ status: 201, body: { buildID: second, tags: ['stable'] } });
    expect(await ask('DELETE', '/templates/tags', { name: 'app', tags: ['v1'] })).toMatchObject({
      status: 204,
    });
    expect(await tags()).toEqual({ default: second, stable: second });
    for (const [name, status] of [
      ['app:stable', 201],
      ['default/app', 201],
      ['app:v1', 404],
    ] as const)
      expect((await ask('POST', '/v2/sandboxes', { templateID: name })).status).toBe(status);
    expect(await ask('DELETE', '/templates/tags', { name: 'app', tags: ['default'] })).toMatchObject({
      status: 400,
    });
    expect(await ask('DELETE', '/templates/tags', { name: 'app', tags: ['v9'] })).toMatchObject({
      status: 404,
    });
    expect(await ask('POST', '/templates/tags', { target: 'base', tags: ['x'] })).toMatchObject({
      status: 403,
    });
    const { id: equal } = await build({ steps: [run('v2')] }, 'app:equal');
    expect(await tags()).toEqual({ default: second, stable: second, equal });
    const [app] = (await ask('GET', '/templates')).body;
    expect(app).toMatchObject({ templateID: 'app', buildID: second, public: false });
    expect((await ask('GET', '/templates/app')).body.builds[0]).toMatchObject({ buildID: equal });
  });

  it('gives its template the processors and memory that it names, and those of its base otherwise', async () => {
    const limits = { cpuCount: 1, memoryMB: 512 };
    const { id } = await build({ steps: [run('sized')] }, 'app:sized', limits);
    const shown = { cpuCount: 1, memoryMB: 512 };
    expect((await ask('GET', '/templates/app:sized')).body).toMatchObject(shown);
    expect(
      (await ask('GET', '/templates/app')).body.builds.find(({ buildID = '' }) => buildID === id),
    ).toMatchObject(shown);
    const create = await ask('POST', '/v2/sandboxes', { templateID: 'app:sized' });
    expect((await ask('GET', `/sandboxes/${create.body.sandboxID}`)).body).toMatchObject(shown);
    await build({ fromTemplate: 'app:sized', steps: [run('child')] }, 'app:child', { memoryMB: 1_024 });
    const { resources } = await server.world.engine.template('default', 'app:child');
    expect(resources).toEqual({ cpus: 1, memoryMb: 1_024 });
    await build({ steps: [run('disk')] }, 'app:disk', { minFreeDiskMb: 20_000 });
    expect((await server.world.engine.template('default', 'app:disk')).resources).toEqual({ diskMb: 20_000 });
    for (const refused of [{ cpuCount: 0 }, { memoryMB: 64 }, { memoryMB: 1e9 }, { cpuCount: 1.5 }])
      expect(await ask('POST', '/v3/templates', { name: 'app', ...refused })).toMatchObject({ status: 400 });
  });

  it('that fails names the step, leaves no sandbox and changes no template', async () => {
    const before = await server.world.engine.template('default', 'app');
    const { id, status, reason } = await build({ steps: [run('ok'), run('fail now')] });
    expect([status, reason]).toEqual([
      'error',
      { message: 'RUN fail now ended with exit code 3.', step: '2', logEntries: [] },
    ]);
    expect(await server.world.engine.template('default', 'app')).toEqual(before);
    expect(await left(id)).toEqual([]);
  });

  it('runs its start command in the sealed template, when the ready command has succeeded', async () => {
    const { status } = await build({ steps: [run('x')], startCmd: 'serve', readyCmd: 'check' });
    expect(status).toBe('ready');
    expect(ran.at(-1)).toMatchObject({ command: 'check', quiet: true });
    const { services } = await server.world.engine.template('default', 'app');
    expect(services).toMatchObject([{ name: 'start', command: expect.stringContaining("-l -c 'serve'") }]);
    const names = (await server.world.engine.templates('default')).map(({ name }) => name);
    expect(names.filter((name) => name.startsWith('build-'))).toEqual([]);
  });

  it('writes the password for its registry nowhere', async () => {
    const password = 'never-written-down';
    const fromImageRegistry = { type: 'registry', username: 'ada', password };
    const image = { fromTemplate: undefined, fromImage: '127.0.0.1:9/x:1', fromImageRegistry };
    const { status, reason } = await build({ ...image, steps: [run(`echo ${password}`)] });
    expect([status, reason.step]).toEqual(['error', 'base']);
    const rows = [];
    for (const table of ['template_builds', 'template_build_logs', 'templates', 'checkpoints', 'events'])
      rows.push(...(await server.world.db.query(`SELECT * FROM ${table}`)));
    expect(JSON.stringify([rows, reason])).not.toContain(password);
    expect(server.log.join('')).not.toContain(password);
  });

  it('begins with base for E2B’s own image, and with what a built template defines', async () => {
    const first = await build({
      fromTemplate: undefined,
      fromImage: 'e2bdev/base:latest',
      steps: [run('e')],
    });
    expect(first.status).toBe('ready');
    await build({ steps: [{ type: 'ENV', args: ['KEPT', '1'] }, run('parent')] }, 'app:parent');
    await build({ fromTemplate: 'app:parent', steps: [run('child')] });
    expect(ran.at(-1)).toMatchObject({ command: 'child', env: { KEPT: '1' } });
  });

  it('is started once, ends when its template is deleted, and is forgotten with it', async () => {
    const id = await newBuild();
    await start(id, { steps: [run('hang')] });
    await expect.poll(() => ran.length).toBe(1);
    expect(await start(id, {})).toMatchObject({ status: 409 });
    const other = await newBuild();
    await start(other, { steps: [run('hang too')] });
    const third = await newBuild();
    expect(await start(third, {})).toMatchObject({ status: 429 });
    expect(await ask('DELETE', '/templates/app')).toMatchObject({ status: 204 });
    expect(await ask('GET', `/templates/app/builds/${id}/status`)).toMatchObject({ status: 404 });
    await expect.poll(() => left(id)).toEqual([]);
    await expect.poll(() => left(other)).toEqual([]);
    expect((await server.world.engine.templates('default')).map(({ name }) => name)).not.toContain('app');
    release();
  });

  it('of a server that died is run again behind its last finished step, and its sandboxes are killed', async () => {
    const dead = recordingBuilds(server.ctx, 'a dead server');
    const { id } = await abandonedBy(dead, {});
    const [before] = await left(id);
    await builds.start();
    await expect.poll(() => ran.map(({ command }) => command)).toEqual(['done', 'hang', 'hang']);
    expect((await left(id)).map((sandbox) => sandbox.id)).not.toContain(before?.id);
    release();
    const { status, logEntries } = await ended(id);
    expect(status).toBe('ready');
    expect(logEntries.map(({ message }: { message: string }) => message)).toEqual(
      expect.arrayContaining([expect.stringMatching(/server stopped/), 'CACHED [1/2] RUN done']),
    );
    expect(await left(id)).toEqual([]);
    await dead.stop();
    expect(await ended(id)).toMatchObject({ status: 'ready' });
  });

  it('of a server that died ends as an error when it needs credentials, or has ended three servers', async () => {
    const dead = recordingBuilds(server.ctx, 'a dead server');
    const secret = await abandonedBy(dead, { credentials: { username: 'ada', password: 'p' } });
    const deadly = await abandonedBy(dead, {});
    await server.world.db.transaction((tx) =>
      tx.query('UPDATE template_builds SET runs = 3 WHERE id = $1', [deadly.id]),
    );
    await builds.start();
    for (const { id } of [secret, deadly]) {
      expect(await ended(id)).toMatchObject({
        status: 'error',
        reason: { message: expect.stringMatching(/server stopped/) },
      });
      expect(await left(id)).toEqual([]);
    }
    await dead.stop();
  });

  /** A build whose second step hangs in a server that has no lease. */
  async function abandonedBy(dead: TemplateBuilds, more: Partial<BuildOrder>) {
    const made = await dead.create('default', 'app', ['app']);
    const step = (command: string, force: boolean) => ({ is: 'run', force, command }) as const;
    await dead.begin('default', 'app', made.id, {
      base: { is: 'template', name: 'base' },
      steps: [step('done', false), step('hang', true)],
      force: false,
      ...more,
    });
    await expect.poll(() => ran.at(-1)?.command).toBe('hang');
    return made;
  }

  async function left(id: string) {
    const filter = {
      org: 'default',
      states: ['creating', 'running', 'paused'] as const,
      metadata: { 'torpor.template-build': id },
    };
    return (await server.world.engine.list(filter, '', 10)).items;
  }
});

describe('a bad request', () => {
  it.each([
    [{ fromImage: 'debian', fromTemplate: 'base' }, 'and not both'],
    [{ fromTemplate: '' }, 'and not both'],
    [{ steps: [{ type: 'VOLUME', args: ['/x'] }] }, 'Step 1 (VOLUME)'],
    [{ steps: [run('a'), { type: 'ENV', args: ['A'] }] }, 'Step 2 (ENV)'],
    [{ steps: [{ type: 'ENV', args: ['a b', 'x'] }] }, 'cannot be used'],
    [{ steps: [{ type: 'USER', args: ['a; reboot'] }] }, 'no account'],
    [{ steps: [{ type: 'COPY', args: ['a', 'b'] }] }, 'filesHash'],
    [{ steps: [{ type: 'COPY', args: ['a', 'b'], filesHash: '../../secret' }] }, 'filesHash'],
    [{ steps: [{ type: 'COPY', args: ['../a', 'b'], filesHash: '2'.repeat(64) }] }, 'outside'],
    [{ steps: [{ type: 'COPY', args: ['a', 'b', 'x y'], filesHash: '2'.repeat(64) }] }, 'owner'],
    [{ steps: [{ type: 'COPY', args: ['a', 'b', '', 'u+s'], filesHash: '2'.repeat(64) }] }, 'octal'],
    [{ steps: [{ type: 'COPY', args: ['a', 'b'], filesHash: '2'.repeat(64) }] }, 'not uploaded'],
    [{ steps: Array.from({ length: 1_001 }, () => run('x')) }, '1000'],
    [{ steps: [run('x'.repeat(300_000))] }, '262144'],
  ])('%# is refused with its reason, and the build is not started', async (body, why) => {
    const id = await newBuild();
    const refused = await start(id, body);
    expect(refused).toMatchObject({
      status: 400,
      body: { code: 400, message: expect.stringContaining(why) },
    });
    expect((await ask('GET', `/templates/app/builds/${id}/status`)).body.status).toBe('waiting');
  });

  it.each([
    { name: '' },
    { name: 'a b' },
    { name: 'other/app' },
    { name: 'app:Ä' },
    { name: 'app', tags: ['a/b'] },
  ])('for a template with the name %j is 400', async (body) => {
    expect(await ask('POST', '/v3/templates', body)).toMatchObject({ status: 400 });
  });

  it('for a built-in name is 409, for keys of AWS and public templates 501', async () => {
    expect(await ask('POST', '/v3/templates', { name: 'base' })).toMatchObject({ status: 409 });
    const fromImageRegistry = { type: 'aws', awsAccessKeyId: 'a', awsSecretAccessKey: 'b', awsRegion: 'c' };
    const aws = { fromTemplate: undefined, fromImage: 'x', fromImageRegistry };
    expect(await start(await newBuild(), aws)).toMatchObject({ status: 501 });
    await build({ steps: [run('p')] }, 'app');
    expect(await ask('PATCH', '/v2/templates/app', { public: true })).toMatchObject({ status: 501 });
    expect(await ask('PATCH', '/v2/templates/app', { public: false })).toMatchObject({
      status: 200,
      body: { names: ['default/app'] },
    });
  });
});

describe('a link for an upload', () => {
  const hash = '3'.repeat(64);
  const archive = tar({ name: 'a', content: 'A' });

  it('works without a key, for its hash and organisation alone, until it expires', async () => {
    const { body } = await ask('GET', `/templates/app/files/${hash}`);
    const { pathname, search, searchParams } = new URL(body.url);
    const put = (path: string) => ask('PUT', path, archive, null);
    expect(await put(`${pathname.replace(hash, '4'.repeat(64))}${search}`)).toMatchObject({ status: 401 });
    const changed = (change: Record<string, string>) =>
      `${pathname}?${new URLSearchParams({ ...Object.fromEntries(searchParams), ...change })}`;
    expect(await put(changed({ org: 'other' }))).toMatchObject({ status: 401 });
    expect(await put(changed({ expires: String(Date.now() + 1e9) }))).toMatchObject({ status: 401 });
    expect(await put(pathname)).toMatchObject({ status: 400 });
    expect(await put(`${pathname}${search}`)).toMatchObject({ status: 200 });
    expect((await ask('GET', `/templates/app/files/${hash}`)).body.present).toBe(true);
    const others = await ask('GET', `/templates/app/files/${hash}`, undefined, server.keys.other);
    expect(others.body.present).toBe(false);
    expect(await ask('GET', '/templates/app/files/short')).toMatchObject({ status: 404 });
  });

  it('refuses an archive with a path outside', async () => {
    const { body } = await ask('GET', `/templates/app/files/${'5'.repeat(64)}`);
    const { pathname, search } = new URL(body.url);
    const bad = tar({ name: '../x', content: 'A' });
    expect(await ask('PUT', `${pathname}${search}`, bad, null)).toMatchObject({ status: 400 });
    expect((await ask('GET', `/templates/app/files/${'5'.repeat(64)}`)).body.present).toBe(false);
  });

  it('cannot be got with the key of another organisation for a build of this one', async () => {
    const id = await newBuild();
    const asOther = (method: 'GET' | 'POST', path: string, body?: object) =>
      ask(method, `/${path}`, body, server.keys.other);
    expect(await asOther('GET', `templates/app/builds/${id}/status`)).toMatchObject({ status: 404 });
    const begun = await asOther('POST', `v2/templates/app/builds/${id}`, { fromTemplate: 'base' });
    expect(begun).toMatchObject({ status: 404 });
  });
});
