import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ERROR_CODES, type ErrorCode, factsOf } from '@torpor/protocol';
import {
  type ApiServer,
  apiServer,
  CHECKPOINT_ID,
  checkpointView,
  errorReply,
  eventView,
  JOB_ID,
  jobView,
  operationView,
  REQUEST_ID,
  SANDBOX_ID,
  sandboxView,
} from '@torpor/sdk/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type RunOptions, startTorpor, torpor, torporInProcess } from '../testing/run-torpor.ts';
import { COMMANDS } from './command-table.ts';

let server: ApiServer;
let place: string;
beforeEach(async () => {
  server = await apiServer();
  place = await mkdtemp(join(tmpdir(), 'torpor-cli-'));
});
afterEach(async () => {
  await server.close();
  await rm(place, { recursive: true, force: true });
});

const here = (): RunOptions => ({
  env: { TORPOR_URL: server.url, TORPOR_API_KEY: 'secret', TORPOR_READ_RETRIES: '0' },
});
const run = (...args: string[]) => torporInProcess(args, here().env);
const runProcess = (...args: string[]) => torpor(args, here());

describe('help', () => {
  it('is a start page without arguments', async () => {
    const { code, stdout } = await torpor([]);
    expect(code).toBe(0);
    expect(stdout).toContain('torpor create');
  });

  it('lists every command', async () => {
    const { stdout } = await torporInProcess(['--help']);
    for (const { name, summary } of COMMANDS)
      expect(stdout).toMatch(new RegExp(`  ${name} +${summary.slice(0, 9)}`));
  });

  it.each(COMMANDS.map(({ name }) => name))(
    'of %s has usage, examples and related commands',
    async (name) => {
      const { code, stdout } = await torporInProcess([name, '--help']);
      expect(code).toBe(0);
      expect(stdout).toMatch(new RegExp(`^Usage: torpor ${name}`));
      expect(stdout).toContain('--json');
      expect(stdout).toContain('Examples:');
      expect(stdout).toContain('See also: torpor');
    },
  );

  it('names only commands that exist', async () => {
    const known = new Set(COMMANDS.flatMap(({ name, aliases = [] }) => [name, ...aliases]));
    const pages = await Promise.all(COMMANDS.map(({ name }) => torporInProcess([name, '--help'])));
    for (const { stdout } of pages) {
      for (const [, name] of stdout.matchAll(/torpor ([a-z]+)/g)) expect(known).toContain(name);
    }
  });

  it('is printed for a command with only subcommands', async () => {
    const { code, stdout } = await torporInProcess(['files']);
    expect(code).toBe(10);
    expect(stdout).toContain('put');
  });

  it('suggests similar commands', async () => {
    const { code, stderr } = await torporInProcess(['puase', 'web']);
    expect(code).toBe(10);
    expect(stderr).toContain('Did you mean `pause`');
  });
});

describe('version', () => {
  it('is the version of the package', async () => {
    const { version } = JSON.parse(await readFile(join(import.meta.dirname, '../package.json'), 'utf8'));
    expect((await torpor(['version'])).stdout).toContain(version);
    expect(JSON.parse((await torpor(['--version', '--json'])).stdout)).toMatchObject({ version });
  });
});

describe('errors of the API', () => {
  const expected = (code: ErrorCode) => {
    const { http: status, exit: exitCode } = factsOf(code);
    const details = { tag: 'APIErrorResponse', status, code, sessionId: REQUEST_ID };
    return { error: { code: 'API_ERROR', message: 'It failed.', exitCode, details } };
  };
  const args = ['sandbox', 'resume', SANDBOX_ID, '--org-id', 'org_1', '--json'];

  it.each(ERROR_CODES)('%s: one object on stderr, and its exit code (R100, R101)', async (code) => {
    server.answer('POST /v1/sandboxes/*/resume', errorReply(factsOf(code).http, code, 'It failed.'));
    const { code: exitCode, stdout, stderr } = await run(...args);
    expect([exitCode, stdout]).toEqual([factsOf(code).exit, '']);
    expect(JSON.parse(stderr)).toMatchObject(expected(code));
  });

  it.each([
    ['checkpoint_missing', 14],
    ['not_found', 12],
    ['forbidden', 13],
    ['unauthenticated', 11],
    ['invalid_request', 10],
    ['storage_full', 15],
    ['in_use', 1],
  ] as const)('%s exits with %i (R101)', async (code, exitCode) => {
    server.answer('POST /v1/sandboxes/*/resume', errorReply(factsOf(code).http, code, 'It failed.'));
    const ran = await runProcess(...args);
    expect([ran.code, ran.stdout]).toEqual([exitCode, '']);
    expect(JSON.parse(ran.stderr)).toMatchObject(expected(code));
  });

  it('name their checkpoint (R91)', async () => {
    const about = { sandboxId: SANDBOX_ID, checkpointId: CHECKPOINT_ID };
    server.answer('POST /v1/sandboxes/*/resume', errorReply(409, 'checkpoint_missing', 'It is gone.', about));
    const { stderr } = await run('resume', SANDBOX_ID, '--json');
    expect(JSON.parse(stderr).error.details).toMatchObject(about);
  });

  it('are a message, a hint and the request id without --json', async () => {
    server.answer('POST /v1/sandboxes/*/resume', errorReply(409, 'checkpoint_missing', 'It is gone.'));
    const { code, stderr } = await run('resume', SANDBOX_ID);
    expect(code).toBe(14);
    expect(stderr).toBe(
      `error: It is gone.\n hint: Hint for checkpoint_missing.\n       request ${REQUEST_ID}\n`,
    );
  });

  it('are not JSON when only the program in the sandbox has a --json flag', async () => {
    server.answer('GET /v1/sandboxes', errorReply(503, 'capacity', 'Full.'));
    expect((await run('exec', 'web', 'tool', '--json')).stderr).toMatch(/^error: Full/);
  });

  it('of a resume are final: the request is not repeated (R103)', async () => {
    server.answer('POST /v1/sandboxes/*/resume', errorReply(503, 'capacity', 'Full.'));
    await torporInProcess(['resume', SANDBOX_ID], { ...here().env, TORPOR_READ_RETRIES: '5' });
    expect(server.requests).toHaveLength(1);
  });
});

describe('rollback', () => {
  it('finds a checkpoint by name, and fails when there is none', async () => {
    const items = [checkpointView({ names: ['good'] })];
    server.answer('GET /v1/sandboxes/*/checkpoints', { json: { items, nextCursor: null, bytes: 1 } });
    const source = { checkpointId: CHECKPOINT_ID, kind: 'files' };
    server.answer('POST /v1/sandboxes/*/rollback', { json: { sandbox: sandboxView(), source, lost: [] } });
    expect((await run('rollback', SANDBOX_ID, 'good')).code).toBe(0);
    expect(server.requests.at(-1)?.body).toContain(CHECKPOINT_ID);
    expect((await run('rollback', SANDBOX_ID, 'bad')).code).toBe(12);
  });
});

describe('errors of the CLI itself', () => {
  it.each([
    ['an unknown option', ['ls', '--what'], 10],
    ['too many arguments', ['get', SANDBOX_ID, 'more'], 10],
    ['a missing argument', ['rollback', SANDBOX_ID], 10],
    ['no sandbox and no terminal', ['pause'], 10],
    ['an invalid choice', ['create', '--on-idle', 'dance'], 10],
    ['an invalid duration', ['create', '--timeout', 'soon'], 10],
    ['an invalid pair', ['create', '--env', 'NOTHING'], 10],
    ['a shell without a terminal', ['shell', SANDBOX_ID], 10],
    ['an unknown name', ['get', 'unknown'], 12],
    ['a missing file', ['files', 'put', SANDBOX_ID, '/nonexistent/file'], 15],
  ])('%s', async (_, args, exitCode) => {
    server.answer('GET /v1/sandboxes', { json: { items: [], nextCursor: null } });
    const people = await run(...args);
    expect(people.code).toBe(exitCode);
    expect(people.stderr).toMatch(/^error: /);
    const machine = await run(...args, '--json');
    expect(machine.code).toBe(exitCode);
    expect(JSON.parse(machine.stderr)).toMatchObject({
      error: { code: expect.any(String), message: expect.any(String), exitCode },
    });
  });

  it('say how to start the server when none runs', async () => {
    await server.close();
    const env = { TORPOR_URL: server.url };
    const { code, stderr } = await torporInProcess(['ls'], env);
    expect(code).toBe(14);
    expect(stderr).toContain(`Torpor is not running at ${server.url}. Start it with \`npm start\`.`);
    const json = await torporInProcess(['ls', '--json'], env);
    expect(JSON.parse(json.stderr)).toMatchObject({
      error: { code: 'NETWORK_ERROR', exitCode: 14, details: { url: server.url } },
    });
  });

  it('exit with 16 when the user interrupts', async () => {
    const asked = new Promise<void>((resolve) => {
      server.answer('POST /v1/sandboxes/*/pause', { raw: () => resolve() });
    });
    const child = startTorpor(['pause', SANDBOX_ID, '--json'], here());
    let stderr = '';
    child.stderr?.on('data', (chunk) => {
      stderr += chunk;
    });
    const closed = once(child, 'close');
    await asked;
    child.kill('SIGINT');
    expect((await closed)[0]).toBe(16);
    expect(JSON.parse(stderr)).toEqual({ error: { code: 'CANCELLED', message: 'Cancelled.', exitCode: 16 } });
  });
});

describe('answers', () => {
  const page = <T>(...items: T[]) => ({ items, nextCursor: null });

  it("with --json are the API's answers", async () => {
    const pause = {
      sandbox: sandboxView({ state: 'paused' }),
      checkpoint: checkpointView(),
      operation: operationView(),
      warm: false,
      warmReason: null,
    };
    const answers: [string, unknown, string[]][] = [
      ['GET /v1/sandboxes', page(sandboxView()), ['ls']],
      ['GET /v1/sandboxes/*', sandboxView(), ['get', SANDBOX_ID]],
      ['POST /v1/sandboxes', sandboxView(), ['create']],
      ['POST /v1/sandboxes/*/pause', pause, ['hibernate', SANDBOX_ID]],
      [
        'GET /v1/sandboxes/*/checkpoints',
        { ...page(checkpointView()), bytes: 7 },
        ['checkpoints', SANDBOX_ID],
      ],
      ['GET /v1/sandboxes/*/events', page(eventView(1)), ['events', SANDBOX_ID]],
      ['GET /v1/operations', page(operationView()), ['ops']],
      ['DELETE /v1/sandboxes/*', sandboxView({ state: 'killed' }), ['kill', SANDBOX_ID]],
    ];
    for (const [route, json, args] of answers) {
      server.answer(route, { json });
      const { code, stdout } = await run(...args, '--json');
      expect([args[0], code, JSON.parse(stdout)]).toEqual([args[0], 0, json]);
    }
  });

  it('are tables, without colours or spinners in a pipe', async () => {
    server.answer('GET /v1/sandboxes', {
      json: page(sandboxView({ name: 'web', createdAt: Date.now() - 180_000 })),
    });
    const { stdout, stderr } = await run('ls');
    expect(stderr).toBe('');
    const [header, line] = stdout.split('\n');
    expect(header?.split(/\s{2,}/)).toEqual(['ID', 'NAME', 'STATE', 'RUNTIME', 'CREATED', 'ENDS']);
    expect(line?.split(/\s{2,}/)).toEqual([SANDBOX_ID, 'web', 'running', 'process', '3m ago', '-']);
  });

  it('have colours with FORCE_COLOR, and never with NO_COLOR', async () => {
    server.answer('GET /v1/sandboxes', { json: page(sandboxView()) });
    const colored = await torporInProcess(['ls'], { ...here().env, FORCE_COLOR: '1' });
    expect(colored.stdout).toContain('\u001b[32mrunning');
    const plain = await torporInProcess(['ls'], { ...here().env, FORCE_COLOR: '1', NO_COLOR: '1' });
    expect(plain.stdout).not.toContain('\u001b');
  });

  it('find a sandbox by its name, and refuse to choose between two', async () => {
    server.answer('GET /v1/sandboxes/*', { json: sandboxView() });
    server.answer('GET /v1/sandboxes', {
      json: page(sandboxView({ name: 'web' }), sandboxView({ name: 'other' })),
    });
    expect((await run('get', 'web')).code).toBe(0);
    expect(server.requests.at(-1)?.path).toBe(`/v1/sandboxes/${SANDBOX_ID}`);
    server.answer('GET /v1/sandboxes', {
      json: page(sandboxView({ name: 'web' }), sandboxView({ name: 'web' })),
    });
    expect((await run('get', 'web')).code).toBe(10);
  });

  it('print followed events, one line each, until interrupted', async () => {
    server.answer('GET /v1/events', {
      raw: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        for (const n of [1, 2]) response.write(`id: ${n}\ndata: ${JSON.stringify(eventView(n))}\n\n`);
      },
    });
    const child = startTorpor(['events', '-f', '--json'], here());
    let lines = '';
    child.stdout?.on('data', (chunk) => {
      lines += chunk;
    });
    while (lines.split('\n').length < 3) await once(child.stdout as NodeJS.ReadableStream, 'data');
    const closed = once(child, 'close');
    child.kill('SIGINT');
    expect((await closed)[0]).toBe(16);
    expect(
      lines
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).seq),
    ).toEqual([1, 2]);
  });
});

describe('requests', () => {
  it('of create have all options and nothing else', async () => {
    server.answer('POST /v1/sandboxes', { status: 201, json: sandboxView() });
    await run(
      'create',
      ...[
        '--name',
        'web',
        '--timeout',
        '2h',
        '--on-timeout',
        'kill',
        '--delete-paused-after',
        '30d',
        '--no-auto-resume',
        '-e',
        'A=1=2',
        '-e',
        'B=',
      ],
      ...[
        '-m',
        'app=x',
        '--service',
        'app:3000=npm run dev',
        '--network',
        'none',
        '--memory',
        '256',
        '--disk',
        '512',
      ],
    );
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({
      name: 'web',
      timeoutSeconds: 7_200,
      onTimeout: 'kill',
      deletePausedAfterSeconds: 2_592_000,
      autoResume: false,
      env: { A: '1=2', B: '' },
      metadata: { app: 'x' },
      services: [{ name: 'app', port: 3000, command: 'npm run dev' }],
      network: { mode: 'none' },
      resources: { memoryMb: 256, diskMb: 512 },
    });
    await run('create');
    expect(server.requests[1]?.body).toBe('{}');
    expect(server.requests[1]?.headers).toMatchObject({ authorization: 'Bearer secret' });
  });

  it.each([
    ['12h', 43_200],
    ['never', null],
    ['default', 'default'],
  ])('of retention have the duration: %s', async (text, seconds) => {
    server.answer('POST /v1/sandboxes/*/retention', {
      json: sandboxView({ deletePausedAfterSeconds: 43_200 }),
    });
    const { stdout } = await run('retention', SANDBOX_ID, text);
    expect(stdout).toContain('for 12h');
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ deletePausedAfterSeconds: seconds });
  });

  it('of retention are not sent for an invalid duration', async () => {
    expect((await run('retention', SANDBOX_ID, 'soon')).code).toBe(10);
    expect(server.requests).toEqual([]);
  });

  it('of files transfer bytes in both directions', async () => {
    server.answer('PUT /v1/sandboxes/*/files', { json: { path: '/home/a.txt', name: 'a.txt' } });
    await writeFile(join(place, 'a.txt'), 'hello');
    expect((await run('files', 'put', SANDBOX_ID, join(place, 'a.txt'), 'app/')).stdout).toBe(
      '/home/a.txt\n',
    );
    expect(server.requests[0]?.query.get('path')).toBe('app/a.txt');
    expect(server.requests[0]?.body).toBe('hello');
    server.answer('GET /v1/sandboxes/*/files', { text: 'bytes' });
    expect((await run('files', 'cat', SANDBOX_ID, 'b')).stdout).toBe('bytes');
    await run('files', 'get', SANDBOX_ID, 'x/b.txt', place);
    expect(await readFile(join(place, 'b.txt'), 'utf8')).toBe('bytes');
  });
});

describe('page', () => {
  it('prints a link that signs a browser in, also for looking only', async () => {
    const link = { url: 'http://127.0.0.1:7676/#sign-in=ab', expiresAt: 1 };
    server.answer('POST /v1/page/links', { status: 201, json: link });
    expect((await run('page')).stdout).toBe(`${link.url}\n`);
    await run('page', '--read-only');
    expect(server.requests.at(-1)?.body).toBe('{"readOnly":true}');
  });
});

describe('doctor', () => {
  it('prints problems and fixes, and exits with 1', async () => {
    await server.close();
    const env = {
      TORPOR_URL: server.url,
      TORPOR_DATA_DIR: place,
      TORPOR_DATABASE_URL: 'postgres://127.0.0.1:1/x',
    };
    const { code, stdout } = await torporInProcess(['doctor', '--json'], env);
    const { ok, checks } = JSON.parse(stdout) as {
      ok: boolean;
      checks: { what: string; is: string; todo?: string }[];
    };
    expect([code, ok]).toEqual([1, false]);
    for (const what of ['Server', 'PostgreSQL']) {
      expect(checks.find((check) => check.what === what)).toMatchObject({
        is: 'wrong',
        todo: expect.any(String),
      });
    }
    expect(checks.find((check) => check.what === 'Node')).toMatchObject({ is: 'good' });
  });

  it('checks the needs of gVisor when it may be used', async () => {
    const doctor = async (runtime: string) => {
      const env = { TORPOR_DATA_DIR: place, TORPOR_RUNTIME: runtime };
      const { stdout } = await torporInProcess(['doctor', '--json'], env);
      const { checks } = JSON.parse(stdout) as { checks: { what: string; is: string; todo?: string }[] };
      return checks.filter(({ what }) => what.startsWith('gVisor: '));
    };

    const [auto, gvisor, plain] = [await doctor('auto'), await doctor('gvisor'), await doctor('process')];

    expect(auto.length).toBeGreaterThan(0);
    expect(auto.filter(({ is }) => is === 'wrong')).toEqual([]);
    expect(gvisor.map(({ what }) => what)).toEqual(auto.map(({ what }) => what));
    expect(gvisor.filter(({ is }) => is === 'note')).toEqual([]);
    expect([...auto, ...gvisor].filter(({ is, todo }) => (is === 'good') === (todo !== undefined))).toEqual(
      [],
    );
    expect(plain).toEqual([]);
  });
});

describe('completion', () => {
  it('prints a script for each shell, and completes command lines', async () => {
    for (const shell of ['bash', 'zsh', 'fish', 'powershell']) {
      expect((await torpor(['completion', shell])).stdout).toContain('torpor');
    }
    expect((await torpor(['complete', '--', 'pau'])).stdout).toContain('pause');
    expect((await torpor(['complete', '--', 'create', '--on-idle', ''])).stdout).toContain('keep');
    server.answer('GET /v1/sandboxes', { json: { items: [sandboxView({ name: 'web' })], nextCursor: null } });
    expect((await runProcess('complete', '--', 'pause', '')).stdout).toContain('web');
  });
});

describe('job', () => {
  it('lists, shows and ends jobs by their ids, also as JSON (R98)', async () => {
    const lost = { reason: 'rollback', message: 'The job did not run there.' } as const;
    const items = [
      jobView({ restarts: 2, kind: 'service', name: 'app' }),
      jobView({ state: 'lost', endedAt: 5, lost }),
    ];
    server.answer('GET /v1/sandboxes/*/jobs', { json: { items, nextCursor: null } });
    const listed = await run('job', 'ls', SANDBOX_ID, '--state', 'running,lost');
    expect(listed.stdout).toMatch(/app +service +running \(restarts: 2\)/);
    expect(listed.stdout).toContain('lost (rollback)');
    expect(server.requests.at(-1)?.query.get('state')).toBe('running,lost');
    server.answer('GET /v1/jobs/*', { json: items[1] });
    expect((await run('job', 'get', JOB_ID)).stdout).toContain(lost.message);
    expect(JSON.parse((await run('job', 'get', JOB_ID, '--json')).stdout)).toEqual(items[1]);
    const ended = jobView({ state: 'completed', endedAt: 5, exitCode: 143, signal: 'SIGTERM' });
    server.answer('DELETE /v1/jobs/*', { json: ended });
    expect((await run('job', 'end', JOB_ID, '--grace', '1m')).stdout).toContain('SIGTERM');
    expect(server.requests.at(-1)?.query.get('graceSeconds')).toBe('60');
  });

  it('points to the log of a build, and is not found for an unknown id (R110)', async () => {
    const build = { id: JOB_ID, kind: 'build', status: 'ready', sandboxId: null, url: '/api/generation/x' };
    server.answer('GET /v1/jobs/*', { json: build });
    const { code, stderr } = await run('job', 'logs', JOB_ID);
    expect([code, stderr]).toEqual([10, expect.stringContaining('torpor build logs')]);
    server.answer('GET /v1/jobs/*', errorReply(404, 'not_found', 'There is no such job.'));
    expect((await run('job', 'get', JOB_ID)).code).toBe(12);
  });
});
