import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { runInNewContext } from 'node:vm';
import { type ApiServer, apiServer, checkpointView, SANDBOX_ID, sandboxView } from '@torpor/sdk/testing';
import { build } from 'esbuild';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buildSdk } from './build.ts';

const ROOT = join(import.meta.dirname, '../..');
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');

let work: string;
let project: string;
let examples: string[];
/** For Node; the others read what came of it. */
let compiled: SpawnSyncReturns<string>;
let server: ApiServer;
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), 'torpor-sdk-'));
  project = join(work, 'project');
  await buildSdk(join(work, 'built'));
  await mkdir(project);
  await writeFile(join(project, 'package.json'), '{"private":true,"type":"module"}');
  await cp(join(import.meta.dirname, 'consumer.ts'), join(project, 'consumer.ts'));
  await install();
  examples = await guide();
  compiled = await compile(NODE, 'consumer.ts', ...examples);
  server = await apiServer();
}, 120_000);
afterAll(async () => {
  await server?.close();
  await rm(work, { recursive: true, force: true });
});

/** Installs the packed files as `npm install` would from a registry. */
async function install(): Promise<void> {
  const offline = [
    '--offline',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--cache',
    join(work, 'cache'),
  ];
  succeeded(run('npm', ['pack', ...offline, join(work, 'built'), join(ROOT, 'node_modules/zod')], work));
  const tarballs = (await readdir(work)).filter((file) => file.endsWith('.tgz'));
  expect(tarballs).toHaveLength(2);
  succeeded(run('npm', ['install', ...offline, ...tarballs.map((file) => join(work, file))], project));
}

function run(command: string, args: string[], cwd: string): SpawnSyncReturns<string> {
  return spawnSync(command, args, { cwd, encoding: 'utf8' });
}

function succeeded({ status, stdout, stderr }: SpawnSyncReturns<string>): void {
  expect(`${stdout}${stderr}`.slice(0, status === 0 ? 0 : 10_000)).toBe('');
}

const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  // The types of the package itself are checked too.
  skipLibCheck: false,
  target: 'es2022',
};
const BROWSER = {
  ...STRICT,
  module: 'esnext',
  moduleResolution: 'bundler',
  lib: ['es2022', 'dom', 'dom.iterable'],
  types: [],
  noEmit: true,
};
const NODE = {
  ...STRICT,
  module: 'nodenext',
  moduleResolution: 'nodenext',
  lib: ['es2022'],
  typeRoots: [join(ROOT, 'node_modules/@types')],
  types: ['node'],
};

async function compile(compilerOptions: object, ...files: string[]): Promise<SpawnSyncReturns<string>> {
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
  return run(process.execPath, [TSC, '-p', project], project);
}

/** This Node, and another version on the PATH if there is one. */
function nodes(): string[] {
  const others = (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((dir) => !dir.includes('node_modules'))
    .map((dir) => join(dir, 'node'))
    .filter(isExecutable);
  return [process.execPath, ...others.slice(0, 1)];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const EXEC = { exitCode: 0, signal: null, durationMs: 1 };
const SSE = [
  ['start', { pid: 1, autoResumed: false }],
  ['stdout', { data: 'Linux' }],
  ['end', EXEC],
].map(([event, data]) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);

beforeEach(() => {
  server.requests.length = 0;
  server.answer('POST /v1/sandboxes', { status: 201, json: sandboxView({ name: 'web' }) });
  server.answer('POST /v1/sandboxes/*/exec', ({ headers }) =>
    headers.accept === 'text/event-stream'
      ? { text: SSE.join('') }
      : { json: { ...EXEC, stdout: 'Linux', stderr: '', truncated: false, autoResumed: false } },
  );
  server.answer('POST /v1/sandboxes/*/ports/3000/hello', { text: 'hello' });
  server.answer('GET /v1/sandboxes/*/checkpoints', {
    json: { items: [checkpointView()], nextCursor: null, bytes: 1 },
  });
});

describe('the packed SDK', () => {
  it('depends only on the schema library', async () => {
    const installed = await readdir(join(project, 'node_modules'));
    expect(installed.filter((name) => !name.startsWith('.'))).toEqual(['@torpor', 'zod']);
    expect(await readdir(join(project, 'node_modules/@torpor'))).toEqual(['sdk']);
    const files = await readdir(join(project, 'node_modules/@torpor/sdk'), { recursive: true });
    expect(files).toEqual(expect.arrayContaining(['index.js', 'index.d.ts', 'README.md', 'LICENSE']));
    expect(files.filter((file) => /test|(?<!\.d)\.ts$/.test(file))).toEqual([]);
  });

  it('has types for bundlers and browsers', { timeout: 60_000 }, async () => {
    succeeded(await compile(BROWSER, 'consumer.ts'));
  });

  it('has types for Node, and the examples of its guide compile', () => {
    expect(examples.length).toBeGreaterThan(3);
    succeeded(compiled);
  });

  it('runs on every installed Node', { timeout: 60_000 }, async () => {
    for (const node of nodes()) {
      const child = spawn(node, ['consumer.js'], {
        cwd: project,
        env: { TORPOR_URL: server.url, TORPOR_API_KEY: 'k' },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
      expect(err, node).toBe('');
      expect(JSON.parse(out), node).toEqual({
        code: 0,
        stdout: 'Linux',
        streamed: 'Linux',
        answer: 'hello',
        state: 'running',
        id: SANDBOX_ID,
        checkpoints: 1,
        missing: { code: 'not_found', retryable: false, hint: 'Hint for not_found.' },
      });
    }
  });

  it('works in a browser without any module of Node', async () => {
    const { outputFiles, metafile } = await build({
      stdin: {
        contents: `export { Sandbox } from '@torpor/sdk';`,
        resolveDir: project,
      },
      bundle: true,
      platform: 'browser',
      format: 'iife',
      globalName: 'sdk',
      write: false,
      metafile: true,
      minify: true,
    });
    const inputs = Object.values(metafile.inputs).flatMap((input) => input.imports.map(({ path }) => path));
    expect(inputs.filter((path) => path.startsWith('node:'))).toEqual([]);
    const code = outputFiles[0]?.text ?? '';
    // Unused parts of the schema library are dropped.
    expect(code.length).toBeLessThan(200_000);
    const { Sandbox } = runInNewContext(`${code}; sdk`, browserGlobals()) as typeof import('@torpor/sdk');
    const sandbox = await Sandbox.create({ name: 'web' }, { url: server.url, apiKey: 'k' });
    expect((await sandbox.exec('uname')).stdout).toBe('Linux');
    const seen: string[] = [];
    for await (const { type } of sandbox.exec('uname')) seen.push(type);
    expect(seen).toEqual(['start', 'stdout', 'end']);
  });
});

/** Writes each example of the guide into a file of the project. */
async function guide(): Promise<string[]> {
  const page = await readFile(join(ROOT, 'docs/sdk.md'), 'utf8');
  const blocks = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code ?? '');
  return Promise.all(
    blocks.map(async (code, index) => {
      const file = `guide-${index}.ts`;
      await writeFile(join(project, file), `${code}\nexport {};\n`);
      return file;
    }),
  );
}

/** Only the globals that every browser has. */
function browserGlobals(): object {
  const names = [
    'AbortController',
    'AbortSignal',
    'ArrayBuffer',
    'Blob',
    'FormData',
    'Headers',
    'ReadableStream',
    'Request',
    'Response',
    'TextDecoder',
    'TextEncoder',
    'URL',
    'URLSearchParams',
    'Uint8Array',
    'WebSocket',
    'clearTimeout',
    'crypto',
    'fetch',
    'queueMicrotask',
    'setTimeout',
  ] as const;
  return Object.fromEntries(names.map((name) => [name, globalThis[name]]));
}
