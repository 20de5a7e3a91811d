import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { recordPassed } from './compatibility-table.ts';
import { type E2bServer, e2bServer } from './e2b-server.ts';

const run = promisify(execFile);
const noGvisor = await whyNoGvisor();
/** Installed on demand: with its dependencies the package is too large for everybody's installation. */
const CLI = '@e2b/cli@2.19.0';

describe.skipIf(noGvisor !== null)('E2B’s command line, in gVisor', () => {
  let world: E2bServer;
  let home: string;
  let id: string;
  const passed: string[] = [];

  beforeAll(async () => {
    world = await e2bServer('http', 'gvisor');
    home = await mkdtemp(join(tmpdir(), 'torpor-e2b-home-'));
    await run('npm', ['install', '--no-save', '--no-audit', '--no-fund', '--prefix', home, CLI], {
      timeout: 200_000,
    });
    id = (await e2b('sandbox', 'create', 'base', '--detach')).trim();
  }, 300_000);
  afterEach(({ task }) => {
    if ((task.result?.errors ?? []).length === 0) passed.push(`"${task.name}"`);
  });
  afterAll(async () => {
    recordPassed({ name: '`@e2b/cli`', version: CLI.split('@').at(-1) ?? '', over: 'http', passed });
    await world.dispose();
    await rm(home, { recursive: true });
  }, 300_000);

  const e2b = async (...args: string[]) => {
    const env = { PATH: process.env['PATH'], HOME: home, ...world.env };
    const going = run(process.execPath, [join(home, 'node_modules/@e2b/cli/dist/index.js'), ...args], {
      env,
      timeout: 120_000,
    });
    // The program waits for the end of its input before it exits.
    going.child.stdin?.end();
    return (await going).stdout;
  };

  it('creates, lists and describes', async () => {
    expect(id).toMatch(/^[a-z0-9]{20}$/);
    expect(await e2b('sandbox', 'list')).toContain(id);
    expect(JSON.parse(await e2b('sandbox', 'list', '--format', 'json'))).toMatchObject([{ sandboxId: id }]);
    expect(await e2b('sandbox', 'info', id)).toMatch(/State: running/);
    expect(await e2b('template', 'list')).toMatch(/base/);
    expect(await e2b('auth', 'info')).toMatch(/\S/);
  });

  it('runs commands, and exits with their exit codes', async () => {
    expect(await e2b('sandbox', 'exec', id, 'echo', 'from inside')).toBe('from inside\n');
    await expect(e2b('sandbox', 'exec', id, 'exit 3')).rejects.toMatchObject({ code: 3 });
  });

  it('pauses and resumes', async () => {
    await e2b('sandbox', 'exec', id, 'echo kept > kept');
    expect(await e2b('sandbox', 'pause', id)).toContain(id);
    expect(await e2b('sandbox', 'info', id)).toMatch(/State: paused/);
    expect(await e2b('sandbox', 'resume', id)).toContain(id);
    expect(await e2b('sandbox', 'exec', id, 'cat', 'kept')).toBe('kept\n');
  });

  it('builds, lists, uses and deletes templates', async () => {
    const context = join(home, 'context');
    await mkdir(context);
    const dockerfile = ['FROM e2bdev/base', 'COPY one.txt /opt/one', 'RUN cat /opt/one > /opt/two'];
    await writeFile(join(context, 'e2b.Dockerfile'), dockerfile.join('\n'));
    await writeFile(join(context, 'one.txt'), 'one');
    const start = ['--cmd', 'sleep 100000', '--ready-cmd', 'pgrep -x sleep'];
    const built = await e2b('template', 'create', 'from-cli', '--path', context, ...start);
    expect(built).toMatch(/Building sandbox template .*from-cli.* finished/);
    expect(await e2b('template', 'list')).toMatch(/Private +from-cli/);
    const from = (await e2b('sandbox', 'create', 'from-cli', '--detach')).trim();
    expect(await e2b('sandbox', 'exec', from, 'cat /opt/two; pgrep -c -x sleep')).toBe('one1\n');
    await e2b('sandbox', 'kill', from);
    await e2b('template', 'publish', 'from-cli', '--yes');
    expect(await e2b('template', 'list')).toMatch(/Public +from-cli/);
    await e2b('template', 'unpublish', 'from-cli', '--yes');
    expect(await e2b('template', 'list')).toMatch(/Private +from-cli/);
    await e2b('template', 'delete', 'from-cli', '--yes');
    expect(await e2b('template', 'list')).not.toMatch(/from-cli/);
  });

  it('shows figures, logs and snapshots, and kills', async () => {
    expect(await e2b('sandbox', 'metrics', id)).toMatch(/Memory: +\d+ /);
    expect(await e2b('sandbox', 'logs', id)).toMatch(/sandbox\.paused/);
    expect(await e2b('sandbox', 'snapshot', 'create', id)).toMatch(/ckpt_[a-z0-9]{20}/);
    expect(await e2b('sandbox', 'snapshot', 'list')).toMatch(/ckpt_[a-z0-9]{20}/);
    expect(await e2b('sandbox', 'kill', id)).toContain(id);
    expect(await e2b('sandbox', 'list')).not.toContain(id);
  });
});
