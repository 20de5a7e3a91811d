import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import { failureOf } from '@torpor/engine/testing';
import type { ProgramStore } from '@torpor/layers';
import { agentBundle } from '@torpor/runtime-shared/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findTini, guestTools, openGuestTools } from './guest-tools.ts';

const run = promisify(execFile);

let directory = '';
let programs: ProgramStore;
let agentDir = '';
/** Any program can stand in for tini here. */
const tini = '/bin/true';

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-tools-'));
  programs = await programsAt('checkpoints');
  agentDir = await agentBundle();
}, 60_000);

afterAll(() => rm(directory, { recursive: true }));

async function programsAt(name: string): Promise<ProgramStore> {
  return (await openDirectoryStore({ root: join(directory, name) })).layerStore.programs;
}

describe('the tools of guests', () => {
  it('are all that an empty root needs, world-readable and not writable', async () => {
    const tools = await guestTools({ programs, node: process.execPath, agentDir, tini });
    expect((await readdir(tools.directory)).toSorted()).toEqual([
      'agent',
      'bin',
      'empty',
      'empty-file',
      'lib',
      'manifest.json',
      'node',
      'run',
      'tini',
    ]);
    expect(await readdir(join(tools.directory, 'agent'))).toEqual(
      expect.arrayContaining(['agent.mjs', 'sudo.cjs', 'node_modules']),
    );
    const [loader = ''] = tools.loader;
    const here = (path: string) => path.replace('/.torpor', tools.directory);
    const { stdout } = await run(here(loader), [
      '--library-path',
      join(tools.directory, 'lib'),
      here('/.torpor/node'),
      '-p',
      '6*7',
    ]);
    expect(stdout).toBe('42\n');
    for (const file of ['node', 'bin/sudo', 'agent/agent.mjs']) {
      expect((await stat(join(tools.directory, file))).mode & 0o222, file).toBe(0);
    }
    expect((await stat(join(tools.directory, 'bin/sudo'))).mode & 0o777).toBe(0o555);
    expect((await stat(join(tools.directory, 'node'))).ino).not.toBe((await stat(process.execPath)).ino);
  });

  it('are the same for the same contents, timestamps included, and are not made again', async () => {
    const first = await guestTools({ programs, node: process.execPath, agentDir, tini });
    const { ino } = await stat(first.directory);
    expect(await guestTools({ programs, node: process.execPath, agentDir, tini })).toEqual(first);
    expect((await stat(first.directory)).ino).toBe(ino);
    const elsewhere = await guestTools({
      programs: await programsAt('other'),
      node: process.execPath,
      agentDir,
      tini,
    });
    expect(elsewhere.fingerprint).toBe(first.fingerprint);
    for (const file of ['.', 'node', 'agent/agent.mjs', 'agent']) {
      const [a, b] = await Promise.all([first, elsewhere].map((each) => stat(join(each.directory, file))));
      expect(a?.mtimeMs, file).toBe(b?.mtimeMs);
    }
  });

  it('differ for another agent, and both versions are kept until one is removed', async () => {
    const changed = join(directory, 'changed');
    await cp(agentDir, changed, { recursive: true });
    await writeFile(
      join(changed, 'agent.mjs'),
      `${await readFile(join(changed, 'agent.mjs'), 'utf8')}\n// new\n`,
    );
    const old = await guestTools({ programs, node: process.execPath, agentDir, tini });
    const next = await guestTools({ programs, node: process.execPath, agentDir: changed, tini });
    expect(next.fingerprint).not.toBe(old.fingerprint);
    expect(await programs.list('tools')).toEqual([old.fingerprint, next.fingerprint].toSorted());
    expect(await openGuestTools(programs, old.fingerprint)).toEqual(old);
    await programs.sweep('tools', new Set([next.fingerprint]));
    expect(await programs.list('tools')).toEqual([next.fingerprint]);
    expect((await failureOf(openGuestTools(programs, old.fingerprint))).code).toBe('checkpoint_incompatible');
  });

  it('leave no directory when they cannot be made', async () => {
    const broken = await programsAt('broken');
    await expect(guestTools({ programs: broken, node: '/etc/passwd', agentDir, tini })).rejects.toThrow(
      /loader/,
    );
    expect(await broken.list('tools')).toEqual([]);
  });

  it('need tini, and say how to install it', async () => {
    const failure = await failureOf(findTini(['/nowhere/tini']));
    expect([failure.code, failure.message]).toEqual([
      'capability_unsupported',
      expect.stringContaining('apt-get'),
    ]);
    expect(await findTini(['/nowhere', '/bin/true'])).toBe('/bin/true');
  });

  it('start a dynamically linked tini with the libraries of the tools', async () => {
    const { init, loader } = await guestTools({ programs, node: process.execPath, agentDir, tini });
    expect(init).toEqual([...loader, '/.torpor/tini', '--']);
  });
});
