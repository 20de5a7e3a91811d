import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { recordPassed } from './compatibility-table.ts';
import { type E2bServer, e2bServer, OWN_BASE } from './e2b-server.ts';

const run = promisify(execFile);
const noGvisor = await whyNoGvisor();
/** They need accounts at E2B, or change only local files. docs/coming-from-e2b.md names them. */
const WITHOUT_SERVER = ['auth login', 'auth logout', 'auth configure', 'template init', 'template migrate'];
/** Installed on demand: with its dependencies the package is too large for everybody's installation. */
const CLI = '@e2b/cli@2.19.0';

describe.skipIf(noGvisor !== null)('E2B’s command line, in gVisor', () => {
  let world: E2bServer;
  let home: string;
  let id: string;
  const passed: string[] = [];
  const used = new Set<string>();

  beforeAll(async () => {
    world = await e2bServer('http', 'gvisor', OWN_BASE);
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

  const program = () => join(home, 'node_modules/@e2b/cli/dist/index.js');
  const env = () => ({ PATH: process.env['PATH'], HOME: home, ...world.env });
  const e2b = async (...args: string[]) => {
    used.add(args.slice(0, 2).join(' ')).add(args.slice(0, 3).join(' '));
    const going = run(process.execPath, [program(), ...args], { env: env(), timeout: 120_000 });
    // The program waits for the end of its input before it exits.
    going.child.stdin?.end();
    return (await going).stdout;
  };
  /** The same in a terminal, in which `typed` is typed. */
  const inTerminal = async (typed: string, ...args: string[]) => {
    used.add(args.slice(0, 2).join(' '));
    // A terminal that no one looks at has no size.
    const command = ['stty cols 80 rows 24;', process.execPath, program(), ...args].join(' ');
    const going = run('script', ['-q', '-e', '-c', command, '/dev/null'], {
      env: { ...env(), TERM: 'dumb' },
      timeout: 120_000,
    });
    // The program takes input when it is connected.
    const { stdin, stdout } = going.child;
    stdout?.on('data', (text: string) => void (/\$ $/.test(text) && stdin?.write(`${typed}\n`)));
    return (await going).stdout;
  };
  /** The commands of a group, as its help lists them. */
  const commandsOf = async (...group: string[]) => {
    const [, list = ''] = (await e2b(...group, '--help')).split('Commands:\n');
    return [...list.matchAll(/^ {2}([a-z]+)/gm)]
      .map(([, name = '']) => [...group, name].join(' '))
      .filter((name) => !name.endsWith('help'));
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

  it('connects terminals', async () => {
    for (const args of [
      ['connect', id],
      ['create', 'base'],
      ['spawn', 'base'],
    ])
      expect(await inTerminal('echo $((1234 * 5678)); exit', 'sandbox', ...args)).toContain('7006652');
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
    const [snapshot = ''] = /ckpt_[a-z0-9]{20}/.exec(await e2b('sandbox', 'snapshot', 'list')) ?? [];
    expect(await e2b('sandbox', 'snapshot', 'delete', snapshot)).toContain('has been deleted');
    expect(await e2b('sandbox', 'snapshot', 'list')).not.toContain(snapshot);
    const other = (await e2b('sandbox', 'create', 'base', '--detach')).trim();
    const following = e2b('sandbox', 'logs', other, '--follow');
    expect(await e2b('sandbox', 'kill', id)).toContain(id);
    expect(await e2b('sandbox', 'list')).not.toContain(id);
    expect(await e2b('sandbox', 'kill', '--all')).toContain(other);
    expect(await following).toMatch(/sandbox\./);
  });

  it('has no command that was not run, except those that need no server', async () => {
    const groups = await Promise.all(
      [['auth'], ['template'], ['sandbox'], ['sandbox', 'snapshot']].map((group) => commandsOf(...group)),
    );
    const all = groups.flat().filter((name) => name !== 'sandbox snapshot');
    expect(all.length).toBeGreaterThan(20);
    expect(all.filter((name) => !used.has(name) && !WITHOUT_SERVER.includes(name))).toEqual([]);
  });
});
