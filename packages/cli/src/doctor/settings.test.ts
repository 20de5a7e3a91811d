import type { SettingView } from '@torpor/protocol';
import { type TestServer, testServer } from '@torpor/server/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { torporInProcess } from '../../testing/run-torpor.ts';

let server: TestServer;
let url: string;
beforeAll(async () => {
  server = await testServer({
    wrapApp: ({ settingsList }) => ({
      settingsList: settingsList.map((one) =>
        one.name === 'engine.callMs' ? { ...one, value: 5_000, source: 'environment' as const } : one,
      ),
    }),
  });
  url = await server.listen();
});
afterAll(() => server.dispose());

interface Answer {
  readonly checks: readonly { readonly what: string; readonly is: string; readonly detail: string }[];
  readonly settings: readonly SettingView[];
}

const doctor = (...args: string[]) =>
  // Only the answer is checked; other checks may fail on this machine.
  torporInProcess(['doctor', ...args], {
    TORPOR_URL: url,
    TORPOR_API_KEY: server.keys.default,
    TORPOR_RUNTIME: 'process',
  });
const json = async (...args: string[]) => JSON.parse((await doctor('--json', ...args)).stdout) as Answer;

describe('torpor doctor', () => {
  it("lists the server's changed settings, their source, and how to see all (R113)", async () => {
    const { checks, settings } = await json();
    const check = checks.find(({ what }) => what === 'Settings');
    expect(check?.is).toBe('note');
    expect(check?.detail).toBe(
      'engine.callMs = 5000 (environment; default 60000); `torpor doctor --settings` lists all',
    );
    expect(settings.map(({ name }) => name)).toEqual(['engine.callMs']);
  });

  it('lists every setting with --settings (R113)', async () => {
    const { settings } = await json('--settings');
    expect(settings.length).toBe(server.ctx.settingsList.length);
    const { stdout } = await doctor('--settings');
    for (const { name } of settings) expect(stdout).toContain(name);
    expect(stdout).toMatch(
      /engine\.callMs +5000 +ms +60000 +1\.\.2073600000 +environment +How long one call/,
    );
  });

  it('shows no settings for the key of a user (R113)', async () => {
    const env = { TORPOR_URL: url, TORPOR_API_KEY: server.keys.user, TORPOR_RUNTIME: 'process' };
    const { stdout } = await torporInProcess(['doctor', '--json'], env);
    expect((JSON.parse(stdout) as Answer).settings).toEqual([]);
  });
});
