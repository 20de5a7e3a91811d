import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { systemClock } from '@torpor/engine';
import { describe, expect, it } from 'vitest';
import { APP } from '../../testing/build-world.ts';
import { FakeProvider } from '../../testing/fake-provider.ts';
import { describeProject } from '../pipeline/project.ts';
import { DEFAULT_BUILD_SETTINGS } from '../settings.ts';
import { hostCommandRunner, sandboxCommandRunner } from './command.ts';
import { checkFiles, type GeneratedFile, textFile, textOf } from './generated-files.ts';
import { chooseStarter, STARTERS, starterRunner } from './starter.ts';

const { files: limits } = DEFAULT_BUILD_SETTINGS;
const orderFor = (goal: string, previous: readonly GeneratedFile[] = []) =>
  ({
    org: 'acme',
    jobId: 'job_00000000000000000000',
    projectId: 'p',
    goal,
    previous,
    output: () => {},
  }) as const;
const { signal } = new AbortController();

describe('files of a runner', () => {
  it.each([
    ['', 'is empty or too long'],
    ['/etc/passwd', 'below the workspace'],
    ['a//b', 'below the workspace'],
    ['./a', 'below the workspace'],
    ['a/..', 'below the workspace'],
    ['a\nb', 'characters'],
    ['\ud800', 'characters'],
    ['x'.repeat(600), 'is empty or too long'],
    [Array.from({ length: 30 }, () => 'd').join('/'), 'too deep'],
    ['Node_Modules/x.js', 'belongs to a tool'],
  ])('are refused for the path %j', (path, why) => {
    expect(() => checkFiles([textFile(path, 'x')], limits)).toThrow(why);
  });

  it('are refused for their number, their size and conflicting paths', () => {
    const many = Array.from({ length: 4 }, (_, i) => textFile(`f${i}`, 'xx'));
    expect(() => checkFiles(many, { ...limits, count: 3 })).toThrow('4 files');
    expect(() => checkFiles(many, { ...limits, fileBytes: 1 })).toThrow('2 bytes');
    expect(() => checkFiles(many, { ...limits, totalBytes: 7 })).toThrow('together');
    expect(() => checkFiles([textFile('a', ''), textFile('a', '')], limits)).toThrow('twice');
    expect(() => checkFiles([textFile('a', ''), textFile('a/b', '')], limits)).toThrow('directory');
    expect(() => checkFiles([], limits)).toThrow('no files');
  });

  it('may have any other name', () => {
    const odd = ['.env.example', 'a b.txt', 'ünï/日本.md', '-rf', '$(x).sh', '...'];
    expect(
      checkFiles(
        odd.map((path) => textFile(path, '')),
        limits,
      ),
    ).toHaveLength(odd.length);
  });
});

describe('the description of a project', () => {
  const project = (manifest: unknown, port: number | null = null, more: GeneratedFile[] = []) =>
    describeProject([textFile('package.json', JSON.stringify(manifest)), ...more], port);
  const dev = { scripts: { dev: 'the-dev', start: 'the-start' } };

  it.each([
    [{ ...dev, dependencies: { next: '15' } }, 'next', 3000, 'the-dev --port "$PORT"'],
    [{ ...dev, devDependencies: { vite: '6' } }, 'vite', 5173, 'the-dev --host'],
    [{ ...dev, dependencies: { 'react-scripts': '5' } }, 'react-scripts', 3000, 'the-start'],
    [{ ...dev, dependencies: { express: '5' } }, 'express', 3000, 'the-start'],
    [{ ...dev, dependencies: { hono: '4' } }, 'hono', 3000, 'the-start'],
    [dev, 'node', 3000, 'the-dev'],
  ])('is read from package.json: %#', (manifest, framework, port, start) => {
    const found = project(manifest);
    expect(found).toMatchObject({ framework, port });
    expect(found.start).toContain(start);
    expect(found.start).toContain(`\${PORT:-${port}}`);
  });

  it('has the requested port, and an install command only with dependencies', () => {
    expect(project(dev, 8080)).toMatchObject({ port: 8080, install: undefined, check: undefined });
    const locked = project({ ...dev, dependencies: { a: '1' } }, null, [textFile('package-lock.json', '{}')]);
    expect(locked.install).toMatch(/^npm ci/);
    expect(project({ ...dev, devDependencies: { a: '1' } }).install).toMatch(/^npm install/);
  });

  it('is refused without a package.json or a script (R23)', () => {
    expect(() => describeProject([textFile('app.tsx', '')], null)).toThrow('no package.json');
    expect(() => describeProject([textFile('README.md', '')], null)).toThrow('no package.json');
    expect(() => project({})).toThrow('neither');
    expect(() => describeProject([textFile('package.json', '{')], null)).toThrow('cannot be read');
    expect(() => project({ scripts: { start: 7 } })).toThrow('cannot be read');
    expect(describeProject([textFile('index.html', '')], null).framework).toBe('static');
  });
});

describe('the starter runner', () => {
  it.each([
    ['a landing page for otters', 'page'],
    ['a REST API for notes', 'api'],
    ['a live dashboard', 'dashboard'],
    ['something without a keyword', 'page'],
  ])('chooses for %j the starter %s', (goal, starter) => {
    expect(chooseStarter(goal)).toBe(starter);
  });

  it.each(STARTERS)('provides a complete application: %s', async (starter) => {
    const goal = { page: 'a page', api: 'an api', dashboard: 'a dashboard' }[starter];
    const files = checkFiles(await starterRunner.run(orderFor(goal), signal), limits);
    expect(describeProject(files, null)).toMatchObject({ framework: 'node', port: 3000, install: undefined });
    expect(files.map(({ path }) => path)).toEqual(
      expect.arrayContaining(['package.json', 'README.md', 'server.js']),
    );
  });

  it('keeps its starter in an iteration, and remembers the goals', async () => {
    const first = await starterRunner.run(orderFor('a live dashboard'), signal);
    const second = await starterRunner.run(orderFor('make it blue', first), signal);
    const goal = second.find(({ path }) => path === 'goal.json');
    expect(JSON.parse(goal === undefined ? '' : textOf(goal))).toEqual({
      starter: 'dashboard',
      goals: ['a live dashboard', 'make it blue'],
    });
  });

  it.each(['null', '7', '{"starter":"unknown","goals":"text"}', '{'])(
    'ignores a damaged goal file: %s',
    async (content) => {
      const files = await starterRunner.run(
        orderFor('a live dashboard', [textFile('goal.json', content)]),
        signal,
      );
      const goal = files.find(({ path }) => path === 'goal.json');
      expect(JSON.parse(goal === undefined ? '' : textOf(goal))).toEqual({
        starter: 'dashboard',
        goals: ['a live dashboard'],
      });
    },
  );
});

describe('the command runner on this machine', () => {
  const run = (
    command: string,
    more: { previous?: GeneratedFile[]; timeoutMs?: number; signal?: AbortSignal } = {},
  ) =>
    hostCommandRunner({ command, timeoutMs: more.timeoutMs ?? 10_000, env: { FLAVOUR: 'salt' }, limits }).run(
      orderFor('otters', more.previous),
      more.signal ?? signal,
    );

  it('passes the goal on stdin and returns the files in the workspace', async () => {
    const files = await run(
      'mkdir -p a && cat > a/goal.txt && echo $FLAVOUR > b.txt && chmod +x b.txt && cat old.txt >> b.txt',
      {
        previous: [textFile('old.txt', 'old')],
      },
    );
    const byPath = Object.fromEntries(files.map((file) => [file.path, file]));
    expect(Object.keys(byPath).sort()).toEqual(['a/goal.txt', 'b.txt', 'old.txt']);
    expect(textOf(byPath['a/goal.txt'] as GeneratedFile)).toBe('otters');
    expect(byPath['b.txt']).toMatchObject({ executable: true });
  });

  it('follows no link, and skips directories of tools', async () => {
    const files = await run(
      'ln -s /etc/passwd p; ln -s /etc d; mkfifo f; mkdir node_modules; echo > node_modules/x; echo > ok',
    );
    expect(files.map(({ path }) => path)).toEqual(['ok']);
  });

  it('fails with the program, stops it at the timeout, and leaves nothing behind', async () => {
    const left = async () => (await readdir(tmpdir())).filter((name) => name.startsWith('torpor-build-'));
    const before = await left();
    await expect(run('exit 3')).rejects.toThrow('exit 3');
    await expect(run('sleep 60 & sleep 60', { timeoutMs: 100 })).rejects.toMatchObject({ code: 'timeout' });
    const leaving = new AbortController();
    const running = run('sleep 60', { signal: leaving.signal });
    setTimeout(() => leaving.abort(new Error('cancelled')), 50);
    await expect(running).rejects.toThrow('cancelled');
    expect(await left()).toEqual(before);
  });
});

describe('the command runner in a sandbox', () => {
  it('kills its sandbox after success and failure (R5)', async () => {
    const provider = new FakeProvider(systemClock);
    provider.workspace = [...APP, textFile('.torpor-workspace', '')];
    const runner = sandboxCommandRunner(provider, { command: 'agent', timeoutMs: 60_000, env: {}, limits });
    expect(await runner.run(orderFor('otters'), signal)).toEqual(APP);
    provider.command = () => 1;
    await expect(runner.run(orderFor('otters'), signal)).rejects.toThrow('exit 1');
    expect(provider.live).toEqual([]);
    expect(provider.named('create')).toHaveLength(2);
  });
});
