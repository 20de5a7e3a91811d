/** The published form of `torpor`. `install.campaign.test.ts` installs it as a user does. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildTorpor } from './build.ts';
import { ROOT } from './modules.ts';

let work: string;
let built: string;
let files: string[];
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), 'torpor-package-'));
  built = join(work, 'torpor');
  await buildTorpor(built);
  const entries = await readdir(built, { recursive: true, withFileTypes: true });
  files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}, 60_000);
afterAll(() => rm(work, { recursive: true, force: true }));

describe('the package torpor', () => {
  it('has no TypeScript, no tests and nothing that only builds it', () => {
    const names = files.map((file) => file.slice(built.length + 1));
    expect(names.filter((name) => /\.tsx?$|\.test\.|\/testing\/|esbuild/.test(name))).toEqual([]);
    expect(names).toEqual(
      expect.arrayContaining([
        'README.md',
        'LICENSE',
        'lib/cli/bin/torpor.mjs',
        'lib/agent/dist/agent.mjs',
        'lib/engine/migrations/0001_lifecycle.sql',
        'lib/host/src/programs/launcher-process.mjs',
        'lib/network/src/socket-maker.js',
      ]),
    );
  });

  it('contains every module that it imports, and declares every package', async () => {
    // Fails when a module of the package is missing.
    const { metafile } = await build({
      entryPoints: ['cli/bin/torpor.mjs', 'network/src/socket-maker.js'].map((file) =>
        join(built, 'lib', file),
      ),
      bundle: true,
      write: false,
      outdir: work,
      metafile: true,
      platform: 'node',
      format: 'esm',
      target: 'esnext',
      packages: 'external',
      logLevel: 'silent',
    });
    const imported = Object.values(metafile.inputs)
      .flatMap(({ imports }) => imports.filter(({ external }) => external).map(({ path }) => path))
      .filter((path) => !isBuiltin(path))
      .map((path) =>
        path
          .split('/')
          .slice(0, path.startsWith('@') ? 2 : 1)
          .join('/'),
      );
    const manifest = JSON.parse(await readFile(join(built, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const native = ['@lydell/node-pty', '@napi-rs/xattr'];
    expect([...new Set(imported), ...native].sort()).toEqual(Object.keys(manifest.dependencies));
    for (const version of Object.values(manifest.dependencies)) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  });

  it('starts a server that has its migrations, its agent and its page', async () => {
    await symlink(join(ROOT, 'node_modules'), join(work, 'node_modules'));
    const program = join(built, 'lib/cli/bin/torpor.mjs');
    const env = { PATH: process.env['PATH'], HOME: work };
    const torpor = (...args: string[]) =>
      spawnSync(process.execPath, [program, ...args], { env, cwd: work, encoding: 'utf8' });
    const server = spawn(
      process.execPath,
      [program, 'up', '--runtime', 'process', '--port', '0', '--log-level', 'warn'],
      { env, cwd: work, stdio: ['ignore', 'pipe', 'inherit'] },
    );
    try {
      const url = await readyUrl(server);
      const created = torpor('create', '--name', 'web', '--json');
      expect(created.stderr).toBe('');
      const { id } = JSON.parse(created.stdout) as { id: string };
      const key = (await readFile(join(work, '.torpor/api-key'), 'utf8')).trim();
      const ask = (method: string, path: string, body?: unknown) =>
        fetch(`${url}/v1/sandboxes/${id}${path}`, {
          method,
          headers: { 'x-api-key': key, 'content-type': 'application/json' },
          body: JSON.stringify(body ?? {}),
        });
      const ran = await ask('POST', '/exec', { command: 'echo inside' });
      expect(await ran.json()).toMatchObject({ exitCode: 0, stdout: 'inside\n' });
      expect((await ask('DELETE', '')).status).toBe(200);
      const page = await (await fetch(`${url}/`, { headers: { accept: 'text/html' } })).text();
      const [, script] = /src="(\/page\/[^"]+\.js)"/.exec(page) ?? [];
      expect((await fetch(`${url}${script}`)).status).toBe(200);
    } finally {
      server.kill('SIGTERM');
      await once(server, 'exit');
    }
  });
});

async function readyUrl(server: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: server.stdout as NodeJS.ReadableStream })) {
    const [, url] = /^torpor ready (\S+) /.exec(line) ?? [];
    if (url !== undefined) return url;
  }
  throw new Error('The server did not start.');
}
