/** Building templates, with their tags, files, start commands and failures. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Chapter, Package } from './chapter.ts';

/** A directory with files to copy. */
async function withContext(work: (context: string) => Promise<void>): Promise<void> {
  const context = await mkdtemp(join(tmpdir(), 'torpor-e2b-context-'));
  try {
    await mkdir(join(context, 'src/sub'), { recursive: true });
    await writeFile(join(context, 'src/a.txt'), 'a');
    await writeFile(join(context, 'src/sub/b.txt'), 'b');
    await writeFile(join(context, 'src/left-out.log'), 'x');
    await symlink('a.txt', join(context, 'src/link'));
    await writeFile(join(context, 'one.txt'), 'one');
    await writeFile(join(context, '.dockerignore'), '**/*.log\n');
    await work(context);
  } finally {
    await rm(context, { recursive: true });
  }
}

async function inSandbox({ Sandbox }: Package, template: string, command: string): Promise<string> {
  const sandbox = await Sandbox.create(template, { timeoutMs: 300_000 });
  try {
    return (await sandbox.commands.run(command)).stdout;
  } finally {
    await sandbox.kill();
  }
}

/** The short form: one build with files and a start command, a rebuild from the cache, tags, delete. */
export const building: Chapter = ({ e2b }) =>
  withContext(async (context) => {
    const { Template, Sandbox, waitForFile } = e2b;
    const template = (last: string) =>
      Template({ fileContextPath: context })
        .fromTemplate('base')
        .setEnvs({ LEVEL: '7', TWICE: '$LEVEL$LEVEL' })
        .setWorkdir('/srv/app')
        .copy('src', './')
        .runCmd(`echo "$TWICE $PWD $(id -un) ${last}" > result`)
        .setStartCmd('echo up > /tmp/up; exec sleep 100000', waitForFile('/tmp/up'));
    const lines: string[] = [];
    const onBuildLogs = ({ message }: { message: string }) => void lines.push(message);
    const first = await Template.build(template('one'), 'built:v1', {
      onBuildLogs,
      cpuCount: 1,
      memoryMB: 700,
    });
    assert.deepEqual([first.templateId, first.tags], ['built', ['v1']]);
    assert.ok(lines.includes('[3/4] COPY src ./'));
    const shown = await inSandbox(
      e2b,
      'built:v1',
      'cat result a.txt sub/b.txt link; ls; echo; pgrep -x sleep',
    );
    assert.match(shown, /^77 \/srv\/app user one\naba(?:a\.txt|link|result|sub|\n)+\n\d+\n$/);

    const sized = await Sandbox.create('built:v1', { timeoutMs: 300_000 });
    const { cpuCount, memoryMB } = await sized.getInfo();
    assert.deepEqual([cpuCount, memoryMB], [1, 700]);
    assert.equal((await sized.commands.run('nproc')).stdout, '1\n');
    await sized.kill();

    lines.length = 0;
    const second = await Template.build(template('two'), 'built:v2', { tags: ['default'], onBuildLogs });
    assert.ok(lines.includes('CACHED [3/4] COPY src ./'));
    assert.ok(lines.some((line) => line.startsWith('[4/4] RUN echo')));
    assert.equal(await inSandbox(e2b, 'built', 'cat result'), '77 /srv/app user two\n');
    assert.equal((await Template.assignTags('built:v1', 'stable')).buildId, first.buildId);
    const tags = await Template.getTags('built');
    assert.deepEqual(
      tags.map(({ tag, buildId }) => [tag, buildId]),
      [
        ['default', second.buildId],
        ['stable', first.buildId],
        ['v1', first.buildId],
        ['v2', second.buildId],
      ],
    );
    await Template.removeTags('built', ['v1']);
    assert.deepEqual([await Template.exists('built:v1'), await Template.exists('built')], [false, true]);
    assert.equal(await Sandbox.deleteSnapshot('built'), true);
    assert.equal(await Template.exists('built'), false);
  });

/** A failed step, one without a cache, a build in the background, images, and everything that a builder can say. */
export const buildingMore: Chapter = ({ e2b }) =>
  withContext(async (context) => {
    const { Template, Sandbox, BuildError, TemplateError } = e2b;
    const base = () => Template({ fileContextPath: context }).fromBaseImage();
    // A name from E2B's own registry means the template base.
    const counted = base().runCmd('date +%s%N > /opt/when', { user: 'root' });
    await Template.build(counted, { alias: 'counted' });
    const when = await inSandbox(e2b, 'counted', 'cat /opt/when');
    await Template.build(counted, 'counted');
    assert.equal(await inSandbox(e2b, 'counted', 'cat /opt/when'), when);
    await Template.build(counted, 'counted', { skipCache: true });
    assert.notEqual(await inSandbox(e2b, 'counted', 'cat /opt/when'), when);

    const broken = base().skipCache().runCmd('true').runCmd('echo why >&2; exit 3');
    const failure = await Template.build(broken, 'broken').then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(failure instanceof BuildError);
    assert.match(failure.message, /RUN echo why >&2; exit 3 ended with exit code 3/);
    assert.equal(await Template.aliasExists('broken'), false);

    const files = Template({ fileContextPath: context })
      .fromTemplate('counted')
      .setUser('builder')
      .setWorkdir('work')
      .makeDir(['made', 'copied'])
      .copyItems([{ src: 'one.txt', dest: 'copied/', mode: 0o640 }])
      .copy('src/*.txt', '/opt/only/', { user: 'root' })
      .rename('copied/one.txt', 'made/one')
      .makeSymlink('made/one', 'link')
      .remove('copied', { recursive: true })
      .runCmd(
        'git init -q /tmp/origin && git -C /tmp/origin -c user.name=a -c user.email=a@b commit -q --allow-empty -m x',
      )
      .gitClone('/tmp/origin', 'clone')
      .setReadyCmd('[ -d clone/.git ]');
    const begun = await Template.buildInBackground(files, 'files');
    let status = await Template.getBuildStatus(begun);
    while (status.status === 'building' || status.status === 'waiting') {
      await new Promise((resolve) => setTimeout(resolve, 200));
      status = await Template.getBuildStatus(begun, { logsOffset: 0 });
    }
    assert.equal(status.status, 'ready', status.reason?.message);
    assert.equal(status.logEntries[0]?.message, 'FROM counted');
    const facts =
      'id -un; pwd; stat -c "%a %U" made/one; cat link; ls -A . /opt/only; [ -f /opt/when ] && echo kept';
    assert.equal(
      await inSandbox(e2b, 'files', facts),
      'builder\n/home/user/work\n640 builder\none.:\nclone\nlink\nmade\n\n/opt/only:\na.txt\nkept\n',
    );

    const image = process.env['E2B_TEST_IMAGE'];
    if (image !== undefined) {
      const user = { username: 'ada', password: 'open sesame' };
      await Template.build(Template().fromImage(image, user).runCmd('echo "$OF_IMAGE" > /tmp/r'), 'imaged');
      const made = await Sandbox.create('imaged', { timeoutMs: 300_000 });
      assert.equal(await made.files.read('/tmp/r'), 'yes\n');
      await made.kill();
      const wrong = Template()
        .fromImage(image, { ...user, password: 'wrong' })
        .skipCache();
      await assert.rejects(
        Template.build(wrong, 'imaged', { skipCache: true }),
        /does not accept the credentials/,
      );
    }

    const dockerfile =
      'FROM e2bdev/base\nENV A=1\nCOPY one.txt /opt/one\nRUN cat /opt/one > /opt/two\nCMD sleep 9';
    const parsed = Template({ fileContextPath: context }).fromDockerfile(dockerfile);
    assert.match(Template.toDockerfile(parsed), /^FROM e2bdev\/base\nUSER root\nWORKDIR \/\nENV A=1\nCOPY /);
    assert.match(await Template.toJSON(parsed), /"filesHash": "[0-9a-f]{64}"/);
    await assert.rejects(Template.assignTags('no-such-template', 'x'), TemplateError);
    // The keys are for registries of AWS alone, and there is none here.
    const aws = { accessKeyId: 'a', secretAccessKey: 'b', region: 'eu-west-1' };
    const ofAws = Template().fromAWSRegistry('ghcr.io/acme/x:1', aws);
    await assert.rejects(Template.build(ofAws, 'aws'), /not a registry of AWS/);
    for (const name of ['counted', 'files', 'imaged', 'broken', 'aws']) await Sandbox.deleteSnapshot(name);
  });
