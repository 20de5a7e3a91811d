/** The SDK's git methods with a repository in the sandbox. */
import assert from 'node:assert/strict';
import type { Chapter } from './chapter.ts';

export const git: Chapter = async ({ sandbox }) => {
  const { git: tool, files } = sandbox;
  const [origin, work, other] = ['/home/user/origin.git', '/home/user/work', '/home/user/other'];
  await tool.init(origin, { bare: true, initialBranch: 'main' });
  await tool.configureUser('Ada', 'ada@example.com');
  await tool.setConfig('pull.rebase', 'false');
  assert.equal(await tool.getConfig('user.name'), 'Ada');
  await tool.init(work, { initialBranch: 'main' });
  await files.write(`${work}/a.txt`, '1');
  assert.equal((await tool.status(work)).isClean, false);
  await tool.add(work, { all: true });
  await tool.commit(work, 'first');
  assert.equal((await tool.status(work)).isClean, true);
  await tool.remoteAdd(work, 'origin', origin);
  assert.equal(await tool.remoteGet(work, 'origin'), origin);
  await tool.push(work, { remote: 'origin', branch: 'main', setUpstream: true });
  await tool.clone(origin, { path: other });
  assert.equal(await files.read(`${other}/a.txt`), '1');

  await tool.createBranch(work, 'side');
  await tool.checkoutBranch(work, 'main');
  assert.deepEqual((await tool.branches(work)).branches.toSorted(), ['main', 'side']);
  await tool.deleteBranch(work, 'side');
  await files.write(`${work}/a.txt`, '2');
  await tool.restore(work, { paths: ['a.txt'] });
  assert.equal(await files.read(`${work}/a.txt`), '1');
  await files.write(`${work}/b.txt`, 'new');
  await tool.add(work, { files: ['b.txt'] });
  await tool.reset(work, { mode: 'hard' });
  assert.equal(await files.exists(`${work}/b.txt`), false);
  await tool.commit(work, 'second', { allowEmpty: true });
  await tool.push(work);
  await tool.pull(other);
  assert.match((await sandbox.commands.run(`git -C ${other} log --oneline`)).stdout, /second/);
  await tool.dangerouslyAuthenticate({ username: 'ada', password: 'secret', host: 'git.example.com' });
};
