/**
 * Installs the packages from their tarballs into an empty directory, with a home of its own. As root it does so under another
 * account, to which the repository is hidden, and walks through the first minute of the README there.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, readdirSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildSdk } from '../sdk-package/build.ts';
import { buildTorpor } from './build.ts';
import { type LocalRegistry, localRegistry } from './local-registry.ts';
import { ROOT } from './modules.ts';

const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

let work: string;
let project: string;
let registry: LocalRegistry;
let server: ChildProcess | undefined;
beforeAll(async () => {
  work = await realpath(await mkdtemp(join(tmpdir(), 'torpor-installed-')));
  project = join(work, 'project');
  for (const name of ['home', 'bin', 'project']) await mkdir(join(work, name));
  await buildTorpor(join(work, 'torpor'));
  await buildSdk(join(work, 'sdk'));
  const packed = spawnSync('npm', ['pack', '--ignore-scripts', './torpor', './sdk'], { cwd: work });
  expect(packed.status).toBe(0);
  for (const built of ['torpor', 'sdk']) await rm(join(work, built), { recursive: true });
  await writePrograms();
  await writeFile(join(project, 'package.json'), '{"private":true,"type":"module"}');
  registry = await localRegistry(join(ROOT, 'node_modules'), await nodeForThisMachine());
  if (isRoot) giveAway(work);
}, 120_000);
afterAll(async () => {
  server?.kill('SIGKILL');
  await registry?.close();
  await rm(work, { recursive: true, force: true });
});

/** An installed Node that is older than the one of the tests, if there is one; `npx torpor` must work there too. */
function olderNode(): string | undefined {
  return (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((directory) => !directory.includes('node_modules'))
    .map((directory) => join(directory, 'node'))
    .find((node) => spawnSync(node, ['--version']).status === 0);
}

/** `node`, `npm` and `npx`, which the other account can reach wherever they are installed. */
async function writePrograms(): Promise<void> {
  await copyFile(olderNode() ?? process.execPath, join(work, 'bin/node'));
  const npm = spawnSync('sh', ['-c', 'readlink -f "$(command -v npm)"'], { encoding: 'utf8' }).stdout.trim();
  for (const name of ['npm', 'npx']) {
    const script = npm.replace(/npm-cli\.js$/, `${name}-cli.js`);
    await writeFile(join(work, 'bin', name), `#!/bin/sh\nexec node ${script} "$@"\n`, { mode: 0o755 });
  }
}

/** The package that the install script of `node` fetches. npm does not keep it in the repository. */
async function nodeForThisMachine(): Promise<string> {
  const name = `node-${process.platform}-${process.arch}`;
  const directory = join(work, name);
  await mkdir(join(directory, 'bin'), { recursive: true });
  await copyFile(process.execPath, join(directory, 'bin/node'));
  const manifest = { name, version: process.versions.node, bin: { node: 'bin/node' }, files: ['bin/node'] };
  await writeFile(join(directory, 'package.json'), JSON.stringify(manifest));
  return directory;
}

function giveAway(path: string): void {
  chmodSync(path, 0o700);
  chownSync(path, NOBODY, NOBODY);
  for (const entry of readdirSync(path, { recursive: true, withFileTypes: true }))
    chownSync(join(entry.parentPath, entry.name), NOBODY, NOBODY);
}

/**
 * Mounts an empty directory over the repository, in a mount namespace that only this command has, and gives up root. The
 * mount ends with the command.
 */
const HIDDEN = [
  'unshare',
  '--mount',
  '--propagation=private',
  'sh',
  '-ec',
  'mount -t tmpfs hidden "$0"; exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"',
  ROOT,
];

function start(line: string): ChildProcess {
  const [program = '', ...args] = [...(isRoot ? HIDDEN : []), 'sh', '-c', line];
  return spawn(program, args, {
    cwd: project,
    env: {
      HOME: join(work, 'home'),
      PATH: `${join(work, 'bin')}:/usr/bin:/bin`,
      npm_config_registry: registry.url,
      npm_config_audit: 'false',
      npm_config_fund: 'false',
      npm_config_update_notifier: 'false',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

async function run(line: string): Promise<string> {
  const child = start(line);
  let printed = '';
  let errors = '';
  child.stdout?.on('data', (chunk) => {
    printed += String(chunk);
  });
  child.stderr?.on('data', (chunk) => {
    errors += String(chunk);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${line}: exit ${code}\n${printed}${errors}`);
  return printed;
}

/** The commands of the README under "The same by hand". */
async function firstMinute(): Promise<string[]> {
  const readme = await readFile(join(ROOT, 'README.md'), 'utf8');
  const [, block = ''] = /^The same by hand:\n\n```\n(.*?)^```$/ms.exec(readme) ?? [];
  return block.split('\n').filter((line) => line.startsWith('npx torpor '));
}

async function startServer(): Promise<string> {
  server = start('exec node_modules/.bin/torpor up --port 0 --log-level warn');
  server.stderr?.resume();
  for await (const line of createInterface({ input: server.stdout as NodeJS.ReadableStream })) {
    const [, url] = /^torpor ready (\S+) runtime=process /.exec(line) ?? [];
    if (url !== undefined) return url;
  }
  throw new Error('The server did not start.');
}

describe('the packages, installed from their tarballs', () => {
  it('walk through the first minute of the README, and the SDK with them', async () => {
    if (isRoot) await expect(run(`cat ${join(ROOT, 'README.md')}`)).rejects.toThrow(/No such file/);
    const printed = await run('npm install --loglevel=verbose ../torpor-*.tgz 2>&1');
    // npm passes over an optional dependency that fails.
    await run('test -e node_modules/.bin/node').catch(() => {
      throw new Error(`npm has installed no Node:\n${printed.slice(-20_000)}`);
    });
    await run('npm install ../torpor-sdk-*.tgz');
    // What only builds and tests need is not installed.
    expect(registry.fetched.filter((name) => /^(?:esbuild|typescript|vitest|preact)@/.test(name))).toEqual(
      [],
    );
    expect(await run('npx torpor version')).toMatch(/^torpor \d+\.\d+\.\d+ \(node v(?:2[4-9]|[3-9]\d)\./);

    const url = await startServer();
    const commands = await firstMinute();
    expect(commands.length).toBeGreaterThan(4);
    let shown = '';
    for (const command of commands) shown += await run(command);
    expect(shown).toMatch(/is paused/);
    await run('npx torpor resume web');
    expect(await run('npx torpor exec web "cat index.html"')).toBe('<h1>awake</h1>\n');
    expect(await run('npx torpor files ls web')).toContain('index.html');

    const program = `
      import { Sandbox } from '@torpor/sdk';
      const sandbox = await Sandbox.getOrCreate('web');
      await sandbox.pause();
      const answer = await sandbox.fetch(3000, '/'); // wakes it
      console.log((await answer.text()).trim(), (await sandbox.exec('echo inside')).stdout.trim());`;
    await writeFile(join(project, 'program.mjs'), program);
    const key = `$(cat ${join(work, 'home/.torpor/api-key')})`;
    expect(await run(`TORPOR_URL=${url} TORPOR_API_KEY=${key} node program.mjs`)).toBe(
      '<h1>awake</h1> inside\n',
    );

    const page = await fetch(`${url}/`, { headers: { accept: 'text/html' } });
    const script = /src="(\/page\/[^"]+\.js)"/.exec(await page.text())?.[1];
    expect((await fetch(`${url}${script}`)).status).toBe(200);

    await run('npx torpor kill web');
    expect(await run('npx torpor ls --json')).not.toContain('"name":"web"');
    // The fork of the README is asleep afterwards, so that no process is left.
    const stopped = once(server as ChildProcess, 'exit');
    await run('npx torpor down');
    expect(await stopped).toEqual([0, null]);
  });
});
