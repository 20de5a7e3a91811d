/**
 * The official MCP Inspector (`npm run lab:setup inspector`) tells a whole story at both doors of a real server: `torpor mcp`
 * over stdio, and `/mcp` over HTTP. Each call is a client of its own, as the command line of the inspector works.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROGRAM } from '../../packages/cli/testing/run-torpor.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { inspectorProgram } from './lab-program.mjs';

interface ToolResult {
  readonly content: readonly { readonly type: string; readonly text?: string; readonly uri?: string }[];
  readonly structuredContent?: Readonly<Record<string, unknown>>;
  readonly isError?: boolean;
}

const runtime = process.getuid?.() === 0 ? 'gvisor' : 'process';
const isMissing = !existsSync(inspectorProgram());
if (isMissing) console.log('The inspector of the lab is not installed (npm run lab:setup inspector).');

describe.skipIf(isMissing)('the MCP inspector', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let home: string;
  let server: TorporProcess;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    home = await mkdtemp(join(tmpdir(), 'torpor-inspector-'));
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
  }, 120_000);
  afterAll(async () => {
    await server?.end();
    await rm(home, { recursive: true, force: true });
    await dataDir?.remove();
  }, 120_000);

  /** Runs the inspector once, and resolves with what it prints. */
  async function inspect(target: readonly string[], ...options: readonly string[]): Promise<unknown> {
    const args = ['--cli', '--format', 'json', '--quiet', ...options, ...target];
    const child = spawn(inspectorProgram(), args, {
      env: { PATH: process.env['PATH'], HOME: home },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const [printed, errors, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close') as Promise<[number]>,
    ]);
    if (code !== 0) throw new Error(`exit ${code}: ${printed}${errors}`);
    return JSON.parse(printed);
  }

  const doors = {
    stdio: () => [
      ...['-e', `TORPOR_URL=${server.url}`, '-e', `TORPOR_API_KEY=${server.apiKey}`],
      ...['--', process.execPath, PROGRAM, 'mcp', '--label', 'stdio'],
    ],
    HTTP: () => [
      ...['--transport', 'http', '--server-url', `${server.url}/mcp?label=http`],
      ...['--header', `Authorization: Bearer ${server.apiKey}`],
    ],
  };

  it.each(['stdio', 'HTTP'] as const)('tells the life of a sandbox over %s', async (door) => {
    const target = doors[door]();
    const call = async (tool: string, args: object): Promise<ToolResult> => {
      const json = JSON.stringify(args);
      const printed = await inspect(
        target,
        ...['--method', 'tools/call', '--tool-name', tool, '--tool-args-json', json],
      );
      const { result = printed } = printed as { result?: unknown };
      const answer = result as ToolResult;
      expect([tool, answer.isError ?? false, answer.content]).toEqual([tool, false, answer.content]);
      return answer;
    };
    const sandbox = `inspected-${door.toLowerCase()}`;

    // `--strict` fails for a schema that some clients cannot use.
    const listed = JSON.stringify(await inspect(target, '--method', 'tools/list', '--strict'));
    expect(listed).toContain('create_sandbox');
    expect(listed).toContain('destructiveHint');

    await call('create_sandbox', { name: sandbox });
    await call('write_file', { sandbox, path: 'note.txt', content: 'first' });
    const ran = await call('run_command', { sandbox, command: 'cat note.txt' });
    expect(ran.structuredContent).toMatchObject({ exitCode: 0, stdout: 'first' });
    const link = await call('get_preview_link', { sandbox, port: 3000 });
    expect(link.content).toContainEqual(expect.objectContaining({ type: 'resource_link' }));
    const { structuredContent: sealed } = await call('create_snapshot', { sandbox, name: 'before' });
    await call('write_file', { sandbox, path: 'note.txt', content: 'second' });
    await call('rollback_sandbox', { sandbox, checkpointId: sealed?.['checkpointId'] });
    expect((await call('read_file', { sandbox, path: 'note.txt' })).content[0]?.text).toBe('first');
    const paused = await call('pause_sandbox', { sandbox });
    expect(paused.structuredContent).toMatchObject({ state: 'paused' });
    const { structuredContent: forked } = await call('fork_sandbox', { sandbox });
    const { forks } = forked as { readonly forks: readonly [{ readonly id: string }] };
    await call('resume_sandbox', { sandbox });
    await call('kill_sandbox', { sandbox: forks[0].id });
    await call('kill_sandbox', { sandbox });
    expect((await call('list_sandboxes', {})).structuredContent).toMatchObject({ sandboxes: [] });
  });
});
