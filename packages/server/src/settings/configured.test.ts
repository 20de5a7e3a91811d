import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../config.ts';
import { CATALOGUE, DEFAULT_ALL_SETTINGS } from './catalogue.ts';
import { configureSettings } from './configured.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-settings-'));
});
afterAll(() => rm(directory, { recursive: true }));
beforeEach(() => file({}));

const file = (content: unknown) => writeFile(join(directory, 'torpor.config.json'), JSON.stringify(content));
const read = async (argv: string[] = [], env: NodeJS.ProcessEnv = {}) =>
  (await readConfig(argv, { HOME: '/home/ada', ...env }, directory)).configured;
const set = (...pairs: string[]) => pairs.flatMap((pair) => ['--set', pair]);

describe('settings', () => {
  it('are the defaults when nothing is configured (R113)', async () => {
    const { settings, list } = await read();
    expect(settings).toEqual(DEFAULT_ALL_SETTINGS);
    expect(new Set(list.map(({ source }) => source))).toEqual(new Set(['default']));
  });

  it.each(CATALOGUE)('$name can be set by flag, variable and file (R113)', async (one) => {
    const { name, group, key, variable, min } = one;
    // Checks only this value: the lowest one may contradict the defaults of other settings.
    const found = async (argv: string[], env: NodeJS.ProcessEnv) =>
      (await read(argv, env).catch(expectOrderError))?.list.find((setting) => setting.name === name);
    const expected = (source: string) => expect.objectContaining({ value: min, source });
    for (const [source, argv, env] of [
      ['flag', set(`${name}=${min}`), {}],
      ['environment', [], { [variable]: String(min) }],
    ] as const)
      expect([undefined, expected(source)]).toContainEqual(await found([...argv], env));
    await file({ settings: { [group]: { [key]: min } } });
    expect([undefined, expected('file')]).toContainEqual(await found([], {}));
  });

  it('prefer flags to the environment, then the file, then the default (R113)', async () => {
    await file({
      settings: { engine: { callMs: 1_001, drainMs: 1_002, observeMs: '1s' }, gateway: { holdMs: 9_000 } },
    });
    const env = { TORPOR_ENGINE_CALL_MS: '2001', TORPOR_ENGINE_DRAIN_MS: '2002', TORPOR_GATEWAY_HOLD_MS: '' };
    const { settings, list } = await read(set('engine.callMs=3001'), env);
    expect(settings.engine).toMatchObject({ callMs: 3_001, drainMs: 2_002, observeMs: 1_000 });
    expect(settings.gateway.holdMs).toBe(9_000);
    const changed = list.filter(({ value, default: usual }) => value !== usual);
    expect(changed.map(({ name, source }) => [name, source])).toEqual([
      ['engine.callMs', 'flag'],
      ['engine.drainMs', 'environment'],
      ['engine.observeMs', 'file'],
      ['gateway.holdMs', 'file'],
    ]);
  });

  it('accept units of time and size (R113)', async () => {
    const { settings } = await read(
      set(
        'engine.templateMs=1.5h',
        'engine.operationMs=90s',
        'engine.scrubEveryMs=30d',
        'gateway.maxHeadBytes=128KiB',
        'builds.lifetimeSeconds=2h',
        'engine.drainMs=250ms',
      ),
    );
    expect(settings.engine).toMatchObject({
      templateMs: 5_400_000,
      operationMs: 90_000,
      scrubEveryMs: 30 * 86_400_000,
      drainMs: 250,
    });
    expect(settings.gateway.maxHeadBytes).toBe(131_072);
    expect(settings.builds.lifetimeSeconds).toBe(7_200);
  });

  it.each([
    [set('engine.callsMs=1'), {}, '--set engine.callsMs: no setting is called "engine.callsMs".'],
    [set('motor.callMs=1'), {}, 'no setting is called "motor.callMs"'],
    [set('engine.constructor=1'), {}, 'no setting is called "engine.constructor"'],
    [set('engine.callMs'), {}, '--set engine.callMs: write --set group.name=value'],
    [
      set('engine.callMs=0'),
      {},
      '--set engine.callMs: 0 is not a value of engine.callMs, which is 1 to 2073600000 (milliseconds, or 90s, 5m, 24h, 7d).',
    ],
    [set('engine.callMs=25d'), {}, '25d is not a value of engine.callMs'],
    [set('engine.callMs=soon'), {}, 'soon is not a value'],
    [set('engine.callMs=1.5'), {}, '1.5 is not a value'],
    [set('engine.callMs='), {}, 'is not a value'],
    [set('engine.hands=8s'), {}, '8s is not a value of engine.hands, which is 1 to 256 (a whole number).'],
    [set('gateway.maxHeadBytes=1h'), {}, '1h is not a value'],
    [[], { TORPOR_ENGINE_CALL_MS: '-1' }, 'TORPOR_ENGINE_CALL_MS: -1 is not a value of engine.callMs'],
    [[], { TORPOR_ENGINE_CALLMS: '1' }, 'TORPOR_ENGINE_CALLMS: no such setting.'],
    [
      [],
      { TORPOR_BUILDS_WORKERS: '3', TORPOR_BUILD_WORKERS: '4' },
      'builds.workers is set twice, by TORPOR_',
    ],
  ])('are refused with their name, range and source: %j %j (R113)', async (argv, env, message) => {
    await expect(read(argv, env)).rejects.toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining(message),
    });
  });

  it.each([
    [{ engine: { callMs: '1h1' } }, 'torpor.config.json: settings.engine.callMs: 1h1 is not a value'],
    [{ engine: { callMs: null } }, 'null is not a value'],
    [{ engine: { callMs: true } }, 'true is not a value'],
    [{ engine: 5 }, 'torpor.config.json: settings.engine: must be an object.'],
    [[], 'torpor.config.json: settings: must be an object.'],
    [{ engine: { callms: 5 } }, 'torpor.config.json: settings.engine.callms: no setting'],
  ])('of the file are refused with their path: %j (R113)', async (settings, message) => {
    await file({ settings });
    await expect(read()).rejects.toMatchObject({ message: expect.stringContaining(message) });
  });

  it('that contradict each other are refused with both names and sources (R113)', async () => {
    await expect(read(set('engine.operationMs=30s'))).rejects.toMatchObject({
      code: 'invalid_request',
      message:
        'engine.callMs (60000, from default) must not be above engine.operationMs (30000, from --set engine.operationMs).',
    });
    const env = { TORPOR_SERVER_HEARTBEAT_MS: '60s' };
    await expect(read([], env)).rejects.toMatchObject({
      message:
        'server.heartbeatMs (60000, from TORPOR_SERVER_HEARTBEAT_MS) must be below server.stallMs (60000, from default).',
    });
    expect(
      (await read(set('engine.operationMs=30s', 'engine.callMs=10s', 'engine.captureMs=10s'))).settings.engine
        .callMs,
    ).toBe(10_000);
  });

  it('have defaults that are in range and do not contradict each other (R113)', () => {
    const given = CATALOGUE.map(({ name, default: value }) => ({
      name,
      value,
      source: 'flag' as const,
      where: name,
    }));
    expect(configureSettings(given).settings).toEqual(DEFAULT_ALL_SETTINGS);
  });

  it('accept the older flags of builds (R113)', async () => {
    const env = { TORPOR_BUILD_WORKERS: '9', TORPOR_BUILDS_MAX_WAITING: '7' };
    const { settings } = await read([...set('builds.workers=2'), '--runner-seconds', '60'], env);
    expect(settings.builds).toMatchObject({ workers: 2, maxWaiting: 7, runnerMs: 60_000 });
  });

  it('ignore what Kubernetes sets for a service with such a name (R113)', async () => {
    const env = {
      TORPOR_GATEWAY_SERVICE_HOST: '10.0.0.1',
      TORPOR_GATEWAY_SERVICE_PORT_HTTP: '80',
      TORPOR_GATEWAY_PORT: 'tcp://10.0.0.1:80',
      TORPOR_GATEWAY_PORT_80_TCP_ADDR: '10.0.0.1',
    };
    expect((await read([], env)).settings).toEqual(DEFAULT_ALL_SETTINGS);
  });
});

/** The lowest value of one setting may contradict the default of another. That is refused by the order, not the range. */
function expectOrderError(thrown: unknown): undefined {
  expect(TorporError.from(thrown).message).toMatch(/must (not be above|be below)/);
}
