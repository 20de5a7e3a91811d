import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SandboxView } from '@torpor/protocol';
import { type TestServer, testServer } from '@torpor/server/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunOptions, torpor, torporInProcess } from '../../testing/run-torpor.ts';

const VALUE = 'sk-very-secret';
const RULE = ['--host', 'api.example.com', '--header', 'Authorization'];
let server: TestServer;
let env: NonNullable<RunOptions['env']>;
let directory: string;
beforeAll(async () => {
  server = await testServer();
  env = { TORPOR_URL: await server.listen(), TORPOR_API_KEY: server.keys.default };
  directory = await mkdtemp(join(tmpdir(), 'torpor-secret-'));
});
afterAll(async () => {
  await server.dispose();
  await rm(directory, { recursive: true });
});

const run = (...args: string[]) => torporInProcess(args, env);

describe('torpor secret', () => {
  it('sets a value from stdin or a file, without the line break, lists it without the value, and deletes it', async () => {
    const more = ['--prefix', 'Bearer ', '--method', 'get,POST', '--path', '/v1'];
    const piped = await torpor(['secret', 'set', 'KEY', ...RULE, ...more], { env, stdin: `${VALUE}\n` });
    expect(piped).toMatchObject({ code: 0, stdout: 'KEY is set for api.example.com\n' });
    const file = join(directory, 'value');
    await writeFile(file, `${VALUE}\n`);
    expect((await run('secret', 'set', 'FILED', ...RULE, '--value-file', file)).code).toBe(0);
    const listed = await run('secret');
    expect(listed.stdout).toMatch(/KEY +api.example.com +Authorization +GET,POST \/v1/);
    expect(listed.stdout).toMatch(/FILED +api.example.com +Authorization +all/);
    const stored = JSON.stringify([piped, listed, await server.world.db.query('SELECT * FROM secrets')]);
    expect(stored).not.toContain(VALUE);
    expect((await run('secret', 'rm', 'FILED')).stdout).toContain('FILED is deleted');
    expect((await run('secret', 'ls')).stdout).not.toContain('FILED');
  });

  it('refuses an empty value, a missing file, and a value on the command line', async () => {
    expect((await torpor(['secret', 'set', 'BAD', ...RULE], { env, stdin: '\n' })).code).toBe(10);
    expect((await run('secret', 'set', 'BAD', ...RULE, '--value-file', join(directory, 'none'))).code).toBe(
      15,
    );
    expect((await run('secret', 'set', 'BAD', ...RULE, '--value', VALUE)).code).toBe(10);
    expect((await run('secret', 'ls')).stdout).not.toContain('BAD');
  });

  it('is named by create, shown by network, kept when the rules change, and taken away', async () => {
    await run('create', '--name', 'agent', '--secret', 'KEY');
    const secretsOf = async () =>
      (JSON.parse((await run('get', 'agent', '--json')).stdout) as SandboxView).network.secrets;
    expect(await secretsOf()).toEqual(['KEY']);
    expect((await run('network', 'agent')).stdout).toBe('internet\nsecret KEY\n');
    await run('network', 'agent', '--mode', 'none', '--allow', 'api.example.com');
    expect(await secretsOf()).toEqual(['KEY']);
    expect((await run('network', 'agent', '--no-secrets')).stdout).toBe('none\nallow api.example.com\n');
    expect(await secretsOf()).toEqual([]);
    expect((await run('create', '--secret', 'NO_SUCH')).stderr).toContain('There is no secret NO_SUCH');
  });
});
