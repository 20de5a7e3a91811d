import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runAgent } from '../testing/running-agent.ts';
import { shell, transcribe } from '../testing/transcript.ts';
import { bundleAgent } from './bundle.ts';
import { xattrDirectory } from './bundle-files.ts';

let directory = '';
let bundle = '';

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-bundle-'));
  bundle = await bundleAgent({ into: join(directory, 'built') });
});

afterAll(() => rm(directory, { recursive: true }));

describe('the bundle of the agent', () => {
  it('contains one agent file, the program sudo, the native libraries and a stamp', async () => {
    expect((await readdir(bundle)).toSorted()).toEqual(['agent.mjs', 'node_modules', 'stamp', 'sudo.cjs']);
    const optional = xattrDirectory() === undefined ? [] : ['@napi-rs'];
    expect((await readdir(join(bundle, 'node_modules'))).toSorted()).toEqual(['@lydell', ...optional]);
  });

  it('has no other packages, such as the schema library: all of it is in the memory of every sandbox', async () => {
    const packages = (await readFile(join(bundle, 'agent.mjs'), 'utf8')).matchAll(
      /^\/\/ .*node_modules\/((?:@[^/]+\/)?[^/]+)/gm,
    );
    expect([...new Set([...packages].map(([, name]) => name))].toSorted()).toEqual([
      '@bufbuild/protobuf',
      '@connectrpc/connect',
      '@connectrpc/connect-node',
      '@fastify/busboy',
    ]);
  });

  it('runs without any other file, including terminals', async () => {
    const alone = join(directory, 'alone');
    await cp(bundle, alone, { recursive: true });
    const agent = await runAgent({ script: join(alone, 'agent.mjs') });
    try {
      const said = await transcribe(agent.client.process.start({ process: shell('echo hi') }));
      expect(said.stdout).toBe('hi\n');
      const pty = { size: { cols: 77, rows: 33 } };
      const terminal = await transcribe(agent.client.process.start({ process: shell('stty size'), pty }));
      expect(terminal.pty).toBe('33 77\r\n');
      const form = new FormData();
      form.append('file', new Blob(['x']), join(agent.directory, 'a'));
      expect((await fetch(`${agent.baseUrl}/files`, { method: 'POST', body: form })).status).toBe(200);
    } finally {
      await agent.stop();
    }
  });

  it('is rebuilt only when the stamp differs from the sources', async () => {
    const program = join(bundle, 'agent.mjs');
    const { mtimeMs } = await stat(program);
    await bundleAgent({ into: bundle });
    expect((await stat(program)).mtimeMs).toBe(mtimeMs);
    await writeFile(join(bundle, 'stamp'), 'older');
    await bundleAgent({ into: bundle });
    expect((await stat(program)).mtimeMs).toBeGreaterThan(mtimeMs);
    expect(await readFile(join(bundle, 'stamp'), 'utf8')).toMatch(/^[0-9a-f]{64}$/);
  });

  it('can be built by several processes at once', async () => {
    const into = join(directory, 'contested');
    await Promise.all([1, 2, 3].map(() => bundleAgent({ into })));
    expect((await readdir(directory)).filter((name) => name.startsWith('contested'))).toEqual(['contested']);
    expect((await stat(join(into, 'agent.mjs'))).size).toBe((await stat(join(bundle, 'agent.mjs'))).size);
  });
});
