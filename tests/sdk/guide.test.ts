import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RealServer, realServer } from './real-server.ts';

const ROOT = join(import.meta.dirname, '../..');

const guide = readFileSync(join(ROOT, 'docs/sdk.md'), 'utf8');
const examples = guide
  .split(/^## /m)
  .flatMap((section) =>
    [...section.matchAll(/^```ts\n(.*?)^```$/gms)].map(
      ([, code]) => [section.split('\n', 1)[0], code] as const,
    ),
  );

let server: RealServer;
beforeAll(async () => {
  server = await realServer();
}, 60_000);
afterAll(() => server?.dispose());

describe('the guide to the SDK', () => {
  it.each(examples)('shows what runs: %s', { timeout: 60_000 }, async (_, code) => {
    const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', code ?? ''], {
      cwd: ROOT,
      env: { ...process.env, ...server.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const [, err, [exitCode]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'exit'),
    ]);
    expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
  });
});
