/** Changes that programs make to files, as values: fast-check generates them, and a real mount applies them. */
import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';

const DEEDS = [
  'write',
  'append',
  'sparse',
  'mkdir',
  'fifo',
  'symlink',
  'remove',
  'replace by a file',
  'replace by a directory',
  'rename',
  'rename into a new directory',
  'link',
  'chmod',
  'chown',
  'touch',
] as const;

/**
 * A change selects its entry by a fraction of the list of existing entries and not by a name, so that nearly every change
 * can be applied.
 */
export interface Change {
  readonly does: (typeof DEEDS)[number];
  readonly entry: number;
  readonly directory: number;
  /** Few names, so that changes affect the same entries. */
  readonly name: string;
  readonly number: number;
}

const share = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const change: fc.Arbitrary<Change> = fc.record({
  does: fc.oneof(
    fc.constantFrom(...DEEDS),
    fc.constantFrom<Change['does']>('rename', 'rename into a new directory'),
  ),
  entry: share,
  directory: share,
  name: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'),
  number: fc.nat(70_000),
});

export const changes: fc.Arbitrary<readonly Change[]> = fc.array(change, { minLength: 1, maxLength: 10 });

export function plantTree(top: string): void {
  for (const one of ['a', 'b', 'c']) {
    for (const two of ['a', 'b']) {
      fs.mkdirSync(join(top, one, two, 'a'), { recursive: true });
      fs.writeFileSync(join(top, one, two, 'b'), `${one}${two}b`);
      fs.writeFileSync(join(top, one, two, 'a', 'c'), `${one}${two}ac`);
    }
  }
  fs.linkSync(join(top, 'a/a/b'), join(top, 'a/a/a/b'));
}

/** The result of each change. A change that fails is skipped, as a program would go on. */
export function make(top: string, changes: readonly Change[]): string[] {
  return changes.map((change) => {
    try {
      makeOne(top, change);
      return change.does;
    } catch (thrown) {
      return `${change.does}: ${(thrown as NodeJS.ErrnoException).code ?? 'failed'}`;
    }
  });
}

function makeOne(top: string, change: Change): unknown {
  const entries = fs.readdirSync(top, { recursive: true, withFileTypes: true });
  const paths = entries.map((entry) => join(entry.parentPath, entry.name)).sort();
  const isDirectory = (path: string) => fs.lstatSync(path).isDirectory();
  const isFile = (path: string) => fs.lstatSync(path).isFile();
  const pick = (from: readonly string[], at: number) =>
    from[Math.floor(at * from.length)] ?? join(top, 'nothing');
  const entry = pick(paths, change.entry);
  const to = join(pick([top, ...paths.filter(isDirectory)], change.directory), change.name);
  const { does, number } = change;
  switch (does) {
    case 'write':
      fs.rmSync(to, { force: true });
      return fs.writeFileSync(to, `written ${number}`);
    case 'append':
      // Opening a fifo would block until a reader opens it.
      return isFile(entry) ? fs.appendFileSync(entry, `+${number}`) : undefined;
    case 'sparse':
      fs.rmSync(to, { force: true });
      fs.writeFileSync(to, 'start');
      return fs.truncateSync(to, 300_000);
    case 'mkdir':
      return fs.mkdirSync(to);
    case 'fifo':
      return execFileSync('mkfifo', [to], { stdio: 'ignore' });
    case 'symlink':
      return fs.symlinkSync(`to-${number}`, to);
    case 'remove':
      return fs.rmSync(entry, { recursive: true });
    case 'replace by a file':
      fs.rmSync(entry, { recursive: true });
      return fs.writeFileSync(entry, 'replaced');
    case 'replace by a directory':
      fs.rmSync(entry, { recursive: true });
      return fs.mkdirSync(entry);
    case 'rename':
      return fs.renameSync(entry, to);
    case 'rename into a new directory':
      // A new directory that hides nothing below it, although the old one did.
      fs.mkdirSync(to);
      return fs.renameSync(entry, join(to, 'a'));
    case 'link':
      return fs.linkSync(pick(paths.filter(isFile), change.entry), to);
    case 'chmod':
      return fs.lstatSync(entry).isSymbolicLink() ? undefined : fs.chmodSync(entry, number & 0o7777);
    case 'chown':
      return fs.lchownSync(entry, number, number + 1);
    case 'touch':
      return fs.lutimesSync(entry, number, number + 0.123456);
  }
}
