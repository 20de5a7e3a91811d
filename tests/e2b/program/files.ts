/** Files: bytes in and out in every form, directories, watching, metadata, and URLs that others may use. */
import assert from 'node:assert/strict';
import { type Chapter, until } from './chapter.ts';

export const files: Chapter = async ({ e2b, sandbox }) => {
  const { files: disk } = sandbox;
  const written = await disk.write('notes/a.txt', 'some text');
  assert.deepEqual([written.name, written.path, written.type], ['a.txt', '/home/user/notes/a.txt', 'file']);
  const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => i % 256);
  await disk.write('bytes', bytes.buffer as ArrayBuffer, { gzip: true });
  await disk.write('octets', new Blob([bytes]), { useOctetStream: true });
  await disk.write('empty', '');
  await disk.writeFiles([
    { path: 'many/1', data: 'one' },
    { path: 'many/2', data: 'two' },
  ]);
  assert.equal(await disk.read('notes/a.txt'), 'some text');
  assert.equal(await disk.read('empty'), '');
  assert.equal(await disk.read('many/2'), 'two');
  for (const path of ['bytes', 'octets']) {
    assert.deepEqual(await disk.read(path, { format: 'bytes' }), bytes);
    assert.equal((await disk.read(path, { format: 'blob', gzip: true })).size, bytes.length);
  }
  const stream = await disk.read('many/1', { format: 'stream' });
  assert.equal(await new Response(stream).text(), 'one');
  await assert.rejects(disk.read('not-there'), e2b.FileNotFoundError);

  assert.equal(await disk.makeDir('dir/deep'), true);
  assert.equal(await disk.makeDir('dir/deep'), false);
  const moved = await disk.rename('notes/a.txt', 'dir/b.txt');
  assert.equal(moved.path, '/home/user/dir/b.txt');
  const names = (await disk.list('dir')).map(({ name, type }) => `${type} ${name}`);
  assert.deepEqual(names.sort(), ['dir deep', 'file b.txt']);
  const { size, owner, permissions } = await disk.getInfo('dir/b.txt');
  assert.deepEqual([size, owner, permissions], [9, 'user', '-rw-r--r--']);
  assert.equal(await disk.exists('dir/b.txt'), true);
  await disk.remove('dir');
  assert.equal(await disk.exists('dir/b.txt'), false);

  // Also outside the home, where the user may not write: the new files belong to the user all the same.
  for (const top of ['/app', '/code', '/opt/tool']) {
    await disk.write(`${top}/src/main.txt`, 'x');
    assert.equal((await disk.getInfo(`${top}/src`)).owner, 'user');
    assert.equal((await disk.getInfo(`${top}/src/main.txt`)).owner, 'user');
  }
  await disk.write('of-root', 'x', { user: 'root' });
  assert.equal(await disk.read('/root/of-root'), 'x');
  assert.ok((await disk.list('/root')).some(({ name, owner }) => name === 'of-root' && owner === 'root'));
};

export const fileMetadata: Chapter = async ({ sandbox }) => {
  await sandbox.files.write('labelled', 'x', { metadata: { author: 'ada', purpose: 'test' } });
  const { metadata } = await sandbox.files.getInfo('labelled');
  assert.deepEqual(metadata, { author: 'ada', purpose: 'test' });
  // Where the file system has extended attributes, programs set them too, and they follow the file.
  const set = `python3 -c 'import os; os.setxattr("labelled", "user.e2b.by", b"program")'`;
  const { stdout } = await sandbox.commands.run(`${set} && mv labelled moved && echo set || true`);
  if (stdout !== 'set\n') return;
  const moved = await sandbox.files.getInfo('moved');
  assert.deepEqual(moved.metadata, { author: 'ada', purpose: 'test', by: 'program' });
};

export const watching: Chapter = async ({ sandbox }) => {
  await sandbox.files.makeDir('watched/below');
  const seen: string[] = [];
  const watch = await sandbox.files.watchDir(
    'watched',
    ({ name, type, entry }) =>
      void seen.push(`${type} ${name}${entry === undefined ? '' : ' with its entry'}`),
    { recursive: true, includeEntry: true },
  );
  await sandbox.files.write('watched/below/new.txt', '1');
  await until(() => seen.some((event) => event.startsWith('create below/new.txt')), 'the watch saw the file');
  await sandbox.files.remove('watched/below/new.txt');
  await until(() => seen.some((event) => event.startsWith('remove below/new.txt')), 'the watch saw it go');
  assert.ok(seen.some((event) => event.endsWith('with its entry')));
  const types = seen.map((event) => event.split(' ')[0]);
  assert.deepEqual(types, ['create', 'chmod', 'write', 'remove']);
  await watch.stop();
};

/** A signed URL works for every client that has it, and the path without a signature does not. */
export const signedUrls: Chapter = async ({ sandbox }) => {
  await sandbox.files.write('shared.txt', 'for everybody with the link');
  const read = await sandbox.downloadUrl('shared.txt', { useSignatureExpiration: 60 });
  const answer = await fetch(read);
  assert.deepEqual([answer.status, await answer.text()], [200, 'for everybody with the link']);
  const write = await sandbox.uploadUrl('sent.txt');
  const form = new FormData();
  form.append('file', new Blob(['sent by a browser']));
  assert.equal((await fetch(write, { method: 'POST', body: form })).status, 200);
  assert.equal(await sandbox.files.read('sent.txt'), 'sent by a browser');
  const field = new FormData();
  field.append('file', 'sent as a field');
  assert.equal((await fetch(write, { method: 'POST', body: field })).status, 200);
  assert.equal(await sandbox.files.read('sent.txt'), 'sent as a field');

  const refusal = async (url: string) => {
    const response = await fetch(url);
    return [response.status, ((await response.json()) as { message: string }).message];
  };
  assert.deepEqual(await refusal(read.replace('shared.txt', 'sent.txt')), [401, 'invalid signature']);
  assert.deepEqual(await refusal(read.replace(/signature=[^&]+&/, '')), [
    401,
    'missing signature query parameter',
  ]);
  const old = await sandbox.downloadUrl('shared.txt', { useSignatureExpiration: -60 });
  assert.deepEqual(await refusal(old), [401, 'signature is already expired']);
};
