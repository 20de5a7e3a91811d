import { mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noFaults } from '@torpor/engine';
import { DAY_MS, type SettingView } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../config.ts';
import { openLog } from '../observe/log.ts';
import { type RunningServer, startServer } from '../start.ts';

let directory: string;
let server: RunningServer;

const KEY = 'ab'.repeat(32);
const FLAGS = [
  '--port',
  '0',
  '--runtime',
  'process',
  '--data-dir',
  'data',
  '--set',
  'engine.defaultIdleMs=7m',
];

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-effect-'));
  const file = { settings: { gateway: { linkMs: '200d' }, sessions: { healEveryMs: '11s' } } };
  await writeFile(join(directory, 'torpor.config.json'), JSON.stringify(file));
  const env = {
    HOME: directory,
    TORPOR_API_KEY: KEY,
    TORPOR_SERVER_MAX_JSON_BYTES: '2KiB',
    TORPOR_RUNTIMES_SERVICE_READY_MS: '100',
    TORPOR_RUNTIMES_SERVICE_ANSWER_MS: '100',
  };
  const config = await readConfig([...FLAGS, '--set=buildFiles.count=1'], env, directory);
  server = await startServer(config, { log: openLog({ level: 'silent' }), faults: noFaults });
}, 60_000);

afterAll(async () => {
  await server.stop();
  // As root the runtime keeps its instances outside the data directory and leaves a link to them.
  const instances = await realpath(join(directory, 'data/process')).catch(() => undefined);
  if (instances !== undefined) await rm(instances, { recursive: true, force: true });
  await rm(directory, { recursive: true, force: true });
});

async function ask(method: string, path: string, body?: unknown) {
  const response = await fetch(`${server.url}${path}`, {
    method,
    headers: { 'x-api-key': KEY, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, text: await response.text() };
}

describe('a server with changed settings', { timeout: 60_000 }, () => {
  it('pauses idle sandboxes as the flag says, and makes links as the file says (R113)', async () => {
    const created = await ask('POST', '/v1/sandboxes', { preview: 'private' });
    const { id, idleSeconds } = JSON.parse(created.text) as { id: string; idleSeconds: number };
    expect(idleSeconds).toBe(420);
    const before = Date.now();
    const link = await ask('POST', `/v1/sandboxes/${id}/preview-links`, { port: 3000 });
    expect(JSON.parse(link.text).expiresAt).toBeGreaterThanOrEqual(before + 200 * DAY_MS);
    await ask('DELETE', `/v1/sandboxes/${id}`);
  });

  it('waits for services as long as the variable says (R113)', async () => {
    const services = [{ name: 'silent', command: 'sleep 1000', port: 3000 }];
    const { text } = await ask('POST', '/v1/sandboxes', { services });
    expect(text).toContain('did not listen on port 3000 within 0.1 seconds');
  });

  it('accepts bodies as large as the variable says (R113)', async () => {
    const { status } = await ask('POST', '/v1/sandboxes', { metadata: { long: 'x'.repeat(2_048) } });
    expect(status).toBe(413);
  });

  it('reconciles sessions as often as the file says (R113)', async () => {
    expect(JSON.parse((await ask('GET', '/v1/admin/session-healing')).text)).toMatchObject({
      everyMs: 11_000,
    });
  });

  it('builds with as many files as the flag says (R113)', async () => {
    const begun = await ask('POST', '/api/generation/start', { project_id: 'site', goal: 'a page' });
    const { job_id: id } = JSON.parse(begun.text) as { job_id: string };
    expect((await ask('GET', `/api/jobs/${id}/stream`)).text).toMatch(
      /The runner made \d+ files; 1 are allowed/,
    );
  });

  it('lists all settings with their sources for a service key (R113)', async () => {
    const { items } = JSON.parse((await ask('GET', '/v1/admin/settings')).text) as { items: SettingView[] };
    expect(items.find(({ name }) => name === 'engine.defaultIdleMs')).toMatchObject({
      value: 420_000,
      default: 300_000,
      source: 'flag',
      variable: 'TORPOR_ENGINE_DEFAULT_IDLE_MS',
    });
    expect(items.find(({ name }) => name === 'gateway.linkMs')?.source).toBe('file');
    expect(items.find(({ name }) => name === 'server.maxJsonBytes')?.source).toBe('environment');
    expect(items.find(({ name }) => name === 'engine.callMs')?.source).toBe('default');
    expect(JSON.stringify(items)).not.toContain(KEY);
  });
});
