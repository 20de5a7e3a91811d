/** `torpor files` with `ls`, `cat`, `put`, `get` and `rm`. */
import { isUtf8 } from 'node:buffer';
import { createWriteStream, openAsBlob } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import type { FileEntry } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { CliError } from '../failure.ts';
import { bytes, relative } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { write } from '../write-output.ts';

export const define: Define = (command, handler) => {
  const add = (name: string, summary: string) =>
    command.command(name).summary(summary).description(summary).argument('<sandbox>', 'sandbox id or name');
  add('ls', 'list a directory')
    .alias('list')
    .argument('[path]', 'absolute, or relative to the home directory (default: the home directory)')
    .action(handler(async (cli, [sandbox, path = '.']) => list(cli, sandbox, path)));
  add('cat', 'print a file')
    .argument('<path>', 'absolute, or in the home')
    .action(handler(async (cli, [sandbox, path = '']) => cat(cli, sandbox, path)));
  add('put', 'copy a local file into the sandbox')
    .argument('<local>', 'local file; - is stdin')
    .argument('[path]', 'target path (default: its name in the home directory)')
    .action(handler(async (cli, [sandbox, local = '', path]) => put(cli, sandbox, local, path)));
  add('get', 'copy a file out of the sandbox')
    .argument('<path>', 'absolute, or in the home')
    .argument('[local]', 'target path (default: its name in the current directory); - is stdout')
    .action(handler(async (cli, [sandbox, path = '', local]) => get(cli, sandbox, path, local)));
  add('rm', 'remove a file, or a directory with its contents')
    .argument('<path>', 'absolute, or in the home')
    .action(handler(async (cli, [sandbox, path = '']) => remove(cli, sandbox, path)));
  addExamples(command, {
    examples: [
      ['torpor files ls web app', 'list ~/app'],
      ['torpor files put web ./index.html app/', 'copy a file into the sandbox'],
      ['torpor files get web /var/log/app.log -', 'print a file of the sandbox'],
    ],
    seeAlso: ['exec', 'shell'],
  });
};

async function list(cli: Cli, sandbox: string | undefined, path: string): Promise<void> {
  const id = await sandboxOf(cli, sandbox);
  const listing = await (await cli.torpor()).sandboxes.files(id).list(path, { signal: cli.signal });
  const { colors } = cli.io;
  const rows = listing.entries.map((entry) => [
    modeText(entry),
    entry.owner,
    entry.type === 'file' ? bytes(entry.size) : '-',
    relative(entry.modifiedAt, cli.io.now()),
    nameText(entry),
  ]);
  cli.answer(listing, () =>
    rows.length === 0 ? '' : columns(['MODE', 'OWNER', 'SIZE', 'CHANGED', 'NAME'], rows, colors),
  );
}

async function cat(cli: Cli, sandbox: string | undefined, path: string): Promise<void> {
  const id = await sandboxOf(cli, sandbox);
  const files = (await cli.torpor()).sandboxes.files(id);
  if (!cli.json) {
    for await (const chunk of await files.stream(path, { signal: cli.signal }))
      await write(cli.io.stdout, chunk);
    return;
  }
  const contents = Buffer.from(await files.read(path, { signal: cli.signal }));
  const encoding = isUtf8(contents) ? 'utf8' : 'base64';
  cli.answer({ path, size: contents.length, encoding, content: contents.toString(encoding) }, () => '');
}

async function put(cli: Cli, sandbox: string | undefined, local: string, wanted?: string): Promise<void> {
  if (local === '-' && wanted === undefined)
    throw new CliError('INVALID_ARGUMENT', 'The target path for stdin is missing.');
  const id = await sandboxOf(cli, sandbox);
  const path = wanted === undefined || wanted.endsWith('/') ? `${wanted ?? ''}${basename(local)}` : wanted;
  const contents = local === '-' ? await buffer(cli.io.stdin) : await openFile(local);
  const files = (await cli.torpor()).sandboxes.files(id);
  const written = await cli.withSpinner(
    `Writing ${path}…`,
    files.write(path, contents, { signal: cli.signal }),
  );
  cli.answer(written, () => written.path);
}

async function openFile(local: string): Promise<Blob> {
  const found = await stat(local);
  if (found.isFile()) return openAsBlob(local);
  throw new CliError('FILE_ERROR', `${local} is not a file.`, {
    hint: 'For a directory: tar c <dir> | torpor exec <sandbox> tar x',
  });
}

async function get(
  cli: Cli,
  sandbox: string | undefined,
  path: string,
  local = basename(path),
): Promise<void> {
  const id = await sandboxOf(cli, sandbox);
  const stream = await (await cli.torpor()).sandboxes.files(id).stream(path, { signal: cli.signal });
  if (local === '-') {
    for await (const chunk of stream) await write(cli.io.stdout, chunk);
    return;
  }
  const target = (await isDirectory(local)) ? `${local.replace(/\/$/, '')}/${basename(path)}` : local;
  const copying = pipeline(Readable.fromWeb(stream as never), createWriteStream(target));
  try {
    await cli.withSpinner(`Reading ${path}…`, copying);
  } catch (thrown) {
    // An incomplete file would be taken for the complete one.
    if (!isWriteError(thrown)) await rm(target, { force: true });
    throw thrown;
  }
  cli.answer({ path, local: target, size: (await stat(target)).size }, () => target);
}

async function remove(cli: Cli, sandbox: string | undefined, path: string): Promise<void> {
  const id = await sandboxOf(cli, sandbox);
  await (await cli.torpor()).sandboxes.files(id).remove(path, { signal: cli.signal });
  cli.answer({ path, removed: true }, () => `${path} is removed`);
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

/** The local file could not be opened, so it must not be removed. */
function isWriteError(thrown: unknown): boolean {
  return thrown instanceof Error && (thrown as NodeJS.ErrnoException).syscall === 'open';
}

function modeText({ mode, type }: FileEntry): string {
  const letters = [...'rwxrwxrwx'].map((letter, i) => (mode & (1 << (8 - i)) ? letter : '-'));
  return `${{ file: '-', directory: 'd', symlink: 'l', other: '?' }[type] ?? '?'}${letters.join('')}`;
}

function nameText({ name, type, symlinkTarget }: FileEntry): string {
  if (symlinkTarget !== null) return `${name} -> ${symlinkTarget}`;
  return type === 'directory' ? `${name}/` : name;
}
