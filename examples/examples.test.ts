import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RealServer, realServer } from '../tests/sdk/real-server.ts';

let server: RealServer;
beforeAll(async () => {
  server = await realServer();
}, 60_000);
afterAll(() => server?.dispose());

const ran = new Set<string>();

/** Runs an example as a user would, and returns its output. */
async function run(example: string): Promise<string[]> {
  ran.add(example);
  const child = spawn(process.execPath, [join(import.meta.dirname, example)], {
    env: { ...process.env, ...server.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  return out.trimEnd().split('\n');
}

describe('the example', { timeout: 120_000 }, () => {
  it('of a preview that is paused and resumed', async () => {
    const tenVisits = Array.from({ length: 10 }, (_, index) => `visit ${index + 3}`);
    expect(await run('sleepy-preview.ts')).toEqual([
      'awake: visit 1',
      expect.stringMatching(/^asleep, sealed in ckpt_[a-z0-9]{20}$/),
      'woken by a visitor: visit 2',
      `woken by ten at once: ${tenVisits.sort().join(', ')}`,
      'started 3 times',
    ]);
  });

  it('of a database with ten forks', async () => {
    const futures = Array.from({ length: 10 }, (_, index) => `${index + 1}%: ${6000 + 60 * (index + 1)}`);
    expect(await run('fork-a-database.ts')).toEqual([...futures, 'the original: 6000']);
  });

  it('of an agent', async () => {
    expect(await run('agent-loop.ts')).toEqual([
      'wrote add.sh',
      'ran sh test.sh: exit code 1, 2 + 3 = -1?',
      'ran rm -rf ./*: exit code 0, no output',
      'took that back',
      'wrote add.sh',
      'ran sh test.sh: exit code 0, no output',
      'finished: add.sh adds.',
    ]);
  });
});

describe('the examples', () => {
  it('leave no sandbox behind', async () => {
    const left = await server.torpor.sandboxes.page({ state: ['running', 'paused'] });
    expect(left.items).toEqual([]);
  });

  it('are all run', async () => {
    const files = await readdir(import.meta.dirname);
    expect(files.filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))).toEqual(
      [...ran].sort(),
    );
  });
});
