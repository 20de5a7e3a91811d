/** Another version of this repository, checked out beside it, with the dependencies of this one. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');

export interface OtherVersion extends AsyncDisposable {
  readonly path: string;
  readonly commit: string;
}

/** Undefined where this is no clone, or it has no such commit. */
export async function checkOut(wanted: string): Promise<OtherVersion | undefined> {
  const git = (...args: string[]) => execute('git', args, { cwd: ROOT });
  const found = await git('rev-parse', '--verify', '--quiet', `${wanted}^{commit}`).catch(() => undefined);
  if (found === undefined) return undefined;
  const commit = found.stdout.trim();
  const place = await mkdtemp(join(tmpdir(), 'torpor-version-'));
  const path = join(place, 'torpor');
  await git('worktree', 'add', '--detach', '--quiet', path, commit);
  await linkDependencies(path);
  return {
    path,
    commit,
    async [Symbol.asyncDispose]() {
      await git('worktree', 'remove', '--force', path);
      await rm(place, { recursive: true, force: true });
    },
  };
}

/** The packages of the workspace must be those of the other version. */
async function linkDependencies(path: string): Promise<void> {
  const into = join(path, 'node_modules');
  await mkdir(join(into, '@torpor'), { recursive: true });
  for (const name of await readdir(join(ROOT, 'node_modules'))) {
    if (name !== '@torpor') await symlink(join(ROOT, 'node_modules', name), join(into, name));
  }
  for (const directory of await readdir(join(path, 'packages'))) {
    const own = join(path, 'packages', directory);
    const manifest = await readFile(join(own, 'package.json'), 'utf8').catch(() => undefined);
    if (manifest === undefined) continue;
    const { name } = JSON.parse(manifest) as { name: string };
    if (name.startsWith('@torpor/')) await symlink(own, join(into, name));
  }
}
