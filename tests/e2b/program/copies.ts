/** Forks and snapshots: new sandboxes from the state of this one. */
import assert from 'node:assert/strict';
import type { Chapter } from './chapter.ts';

export const forks: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox, SandboxError } = e2b;
  await sandbox.files.write('origin.txt', 'the same');
  const sleeper = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
  const children = [...(await sandbox.fork({ count: 2 })), ...(await Sandbox.fork(sandbox.sandboxId))];
  assert.equal(children.length, 3);
  for (const child of children) {
    assert.ok(child instanceof Sandbox);
    assert.equal(await child.files.read('origin.txt'), 'the same');
    assert.ok((await child.commands.list()).some(({ pid }) => pid === sleeper.pid));
    await child.files.write('origin.txt', child.sandboxId);
  }
  assert.equal(await sandbox.files.read('origin.txt'), 'the same');
  for (const child of children) if (child instanceof Sandbox) assert.equal(await child.kill(), true);
  await sandbox.pause();
  await assert.rejects(Sandbox.fork(sandbox.sandboxId), SandboxError);
  await sandbox.connect();
  await sandbox.commands.kill(sleeper.pid);
};

export const snapshots: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox } = e2b;
  await sandbox.files.write('version.txt', '1');
  const plain = await sandbox.createSnapshot();
  await sandbox.files.write('version.txt', '2');
  const named = await Sandbox.createSnapshot(sandbox.sandboxId, { name: 'checkpointed' });
  assert.deepEqual(named.names, ['default/checkpointed']);
  await sandbox.files.write('version.txt', '3');
  const listed = async () => {
    const pages = sandbox.listSnapshots({ limit: 1 });
    const ids: string[] = [];
    while (pages.hasNext) ids.push(...(await pages.nextItems()).map(({ snapshotId }) => snapshotId));
    return ids;
  };
  assert.deepEqual(await listed(), [named.snapshotId, plain.snapshotId]);
  const versions = [plain.snapshotId, named.snapshotId, 'checkpointed'].map(async (id) => {
    const copy = await Sandbox.create(id, { timeoutMs: 300_000 });
    const version = await copy.files.read('version.txt');
    assert.equal(await copy.kill(), true);
    return version;
  });
  assert.deepEqual(await Promise.all(versions), ['1', '2', '2']);
  const again = await sandbox.createSnapshot({ name: 'checkpointed' });
  assert.equal(again.snapshotId, named.snapshotId);
  const newest = await Sandbox.create('checkpointed', { timeoutMs: 300_000 });
  assert.equal(await newest.files.read('version.txt'), '3');
  // A sandbox still uses the snapshot: it disappears from the list and stays usable for that sandbox.
  assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), true);
  assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), false);
  assert.equal(await newest.files.read('version.txt'), '3');
  await assert.rejects(Sandbox.create('checkpointed'), e2b.SandboxError);
  await newest.kill();
  assert.equal(await Sandbox.deleteSnapshot(plain.snapshotId), true);
  for (const { snapshotId } of await Sandbox.listSnapshots().nextItems())
    await Sandbox.deleteSnapshot(snapshotId);
};
