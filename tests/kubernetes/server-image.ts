/**
 * The server as an image for the lab: the package `torpor` with its dependencies, as `npm install` puts them, Node and the
 * libraries of Node. With a root it also has the programs that gVisor needs.
 */
import { execFile } from 'node:child_process';
import { chmod, copyFile, cp, lstat, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { librariesOf } from '@torpor/host';
import { writeOciArchive } from '@torpor/pods/testing';
import { buildTorpor } from '../../scripts/torpor-package/build.ts';

const execute = promisify(execFile);

const SERVER_IMAGE = 'local.test/torpor:0.1.0';
const PROGRAM = '/opt/torpor/lib/cli/bin/torpor.mjs';

export interface ServerImage {
  readonly archive: string;
  /** A root file system with a shell and the tools of Debian, which becomes part of the image. */
  readonly base?: string;
  /** Programs of this machine that the image gets with their libraries, at the same paths. */
  readonly programs?: readonly string[];
}

export async function writeServerImage({ archive, base, programs = [] }: ServerImage): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), 'torpor-server-image-'));
  try {
    if (base !== undefined) await execute('cp', ['-a', `${base}/.`, root]);
    for (const name of ['tmp', 'proc', 'sys', 'dev', 'etc', 'data', 'run', 'usr/local/bin'])
      await mkdir(join(root, name), { recursive: true });
    await chmod(join(root, 'tmp'), 0o1777);
    await installTorpor(join(root, 'opt/torpor'));
    await copyProgram(root, process.execPath, '/usr/local/bin/node');
    for (const program of programs) await copyProgram(root, program, program);
    if (base === undefined) {
      await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/\ntorpor:x:1000:1000::/data:/\n');
      await writeFile(join(root, 'etc/group'), 'root:x:0:\ntorpor:x:1000:\n');
    }
    await writeOciArchive({
      archive,
      reference: SERVER_IMAGE,
      root,
      config: {
        Entrypoint: ['/usr/local/bin/node', PROGRAM],
        Env: ['PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/data'],
        WorkingDir: '/data',
      },
    });
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

async function installTorpor(into: string): Promise<void> {
  await mkdir(dirname(into), { recursive: true });
  await buildTorpor(into);
  // Node is in the image already, and without scripts the package `node` brings no second one.
  const flags = ['--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'];
  await execute('npm', ['install', ...flags, '--prefer-offline'], { cwd: into });
}

async function copyProgram(root: string, from: string, to: string): Promise<void> {
  const needs = await librariesOf(from);
  const program = await placeFor(root, to);
  // A link in the root would lead to a file of this machine.
  await rm(program, { force: true });
  await copyFile(from, program);
  await chmod(program, 0o755);
  if (needs?.loader === undefined) return;
  for (const library of [needs.loader, ...needs.libraries]) {
    const place = await placeFor(root, library);
    // A library of the root stays: it may be a link that leads outside of the root.
    if (await isThere(place)) continue;
    await cp(library, place, { dereference: true });
  }
}

function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

/** In a root with merged directories, `/lib64` is a link that leads outside of it. */
async function placeFor(root: string, path: string): Promise<string> {
  const place = join(root, path);
  await mkdir(dirname(place), { recursive: true });
  return place;
}
