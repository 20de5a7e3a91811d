import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from './config.ts';
import { faultsFrom } from './fault-injection.ts';
import { configureSettings } from './settings/configured.ts';

const KEY = 'ab'.repeat(32);
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-config-'));
});
afterAll(() => rm(directory, { recursive: true }));

const read = (argv: string[] = [], env: NodeJS.ProcessEnv = {}) =>
  readConfig(argv, { HOME: '/home/ada', ...env }, directory);
const refusal = (argv: string[], env: NodeJS.ProcessEnv = {}): Promise<TorporError> =>
  read(argv, env).then(
    (config) => Promise.reject(new Error(`accepted: ${JSON.stringify(config)}`)),
    (thrown: TorporError) => thrown,
  );
const file = (settings: unknown) =>
  writeFile(
    join(directory, 'torpor.config.json'),
    typeof settings === 'string' ? settings : JSON.stringify(settings),
  );

describe('the configuration', () => {
  it('is complete without any input', async () => {
    expect(await read()).toEqual({
      port: 7676,
      host: '127.0.0.1',
      dataDir: '/home/ada/.torpor',
      runtime: ['auto'],
      tls: false,
      buildRunsc: true,
      base: 'auto',
      runner: 'starter',
      runnerPlace: 'sandbox',
      openaiSteps: 60,
      openaiTokens: 1_000_000,
      durability: 'sealed',
      drainOnStop: false,
      awsEnvironment: {},
      logLevel: 'info',
      configured: configureSettings([]),
    });
  });

  it('prefers flags to the environment, and the environment to the file', async () => {
    await file({ port: 1, host: 'localhost', runtime: 'process', dataDir: 'data' });
    const config = await read(['--port', '3'], { TORPOR_PORT: '2', TORPOR_HOST: '::1', TORPOR_DOMAIN: '' });
    expect(config).toMatchObject({
      port: 3,
      host: '::1',
      runtime: ['process'],
      dataDir: join(directory, 'data'),
    });
    await file({});
  });

  describe('of a node', () => {
    const SECRET = 'c'.repeat(64);
    const flags = [
      ...['--node', 'a', '--advertise', 'http://10.0.0.5:7676'],
      ...['--database', 'postgres://db/torpor', '--store', 's3://bucket/prefix'],
    ];

    it('needs a database, a store, an address and a secret, and names all that are missing', async () => {
      expect(await read([...flags, '--drain-on-stop'], { TORPOR_CLUSTER_SECRET: SECRET })).toMatchObject({
        node: 'a',
        advertise: 'http://10.0.0.5:7676',
        clusterSecret: SECRET,
        drainOnStop: true,
      });
      const { code, message } = await refusal(['--node', 'a'], {});
      expect(code).toBe('invalid_request');
      for (const missing of ['--database', '--store', '--advertise', 'TORPOR_CLUSTER_SECRET'])
        expect(message).toContain(missing);
    });

    it.each([
      [['--node', 'A b', ...flags.slice(2)], SECRET, '--node'],
      [['--node', 'local', ...flags.slice(2)], SECRET, '"local"'],
      [flags, 'short', 'TORPOR_CLUSTER_SECRET'],
      [['--advertise', 'http://10.0.0.5:7676'], SECRET, '--node'],
      [['--drain-on-stop'], SECRET, '--node'],
      [[...flags.slice(0, 2), '--advertise', 'ftp://x', ...flags.slice(4)], SECRET, '--advertise'],
    ])('refuses %j', async (given, secret, named) => {
      const error = await refusal(given, { TORPOR_CLUSTER_SECRET: secret });
      expect(error).toMatchObject({ code: 'invalid_request', message: expect.stringContaining(named) });
    });
  });

  it('takes several runtimes, the default first, from a flag and as a list from the file', async () => {
    expect((await read(['--runtime', 'process, e2b'])).runtime).toEqual(['process', 'e2b']);
    await file({ runtime: ['e2b', 'kubernetes'] });
    expect((await read()).runtime).toEqual(['e2b', 'kubernetes']);
    await file({});
  });

  it.each([
    ['process,process', 'named twice'],
    ['auto,gvisor', 'gvisor or process already'],
    ['process,', 'Invalid option'],
  ])('refuses the runtimes %s', async (runtimes, words) => {
    await expect(read(['--runtime', runtimes])).rejects.toThrow(words);
  });

  it('takes the store from each source, with the variables of AWS and no others', async () => {
    const env = { TORPOR_STORE: 's3://bucket/prefix', AWS_REGION: 'eu-central-1', SECRET: 'x' };
    expect(await read(['--durability', 'replicated', '--data-key-file', 'keys'], env)).toMatchObject({
      store: 's3://bucket/prefix',
      durability: 'replicated',
      dataKeyFile: join(directory, 'keys'),
      awsEnvironment: { AWS_REGION: 'eu-central-1' },
    });
  });

  it.each([
    ['--store', 'bucket'],
    ['--store', 's3://'],
    ['--store', 's3://key:secret@bucket/prefix'],
    ['--store', 's3://bucket/../other'],
    ['--store', 'file:///'],
    ['--store', 'https://bucket.example.com'],
    ['--durability', 'replicated'],
    ['--durability', 'eternal'],
  ])('refuses %s %s', async (...flags) => {
    await expect(read(flags)).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it('reads every setting from each source', async () => {
    const database = 'postgres://torpor@localhost/torpor';
    const env = {
      TORPOR_DATABASE_URL: database,
      TORPOR_TLS: '1',
      TORPOR_DATA_DIR: '/d',
      TORPOR_API_KEY: `e2b_${KEY}`,
    };
    expect(await read(['--domain', 'sbx.example.com:8443', '--log-level', 'warn'], env)).toMatchObject({
      database,
      tls: true,
      dataDir: '/d',
      apiKey: KEY,
      domain: 'sbx.example.com:8443',
      logLevel: 'warn',
    });
  });

  it('switches TLS on for a certificate with its key, and refuses one without the other', async () => {
    expect(await read(['--tls-cert', '/c/full.pem'], { TORPOR_TLS_KEY: '/c/key.pem' })).toMatchObject({
      tls: true,
      certificateFiles: { cert: '/c/full.pem', key: '/c/key.pem' },
    });
    expect(await refusal(['--tls-cert', '/c/full.pem'])).toMatchObject({
      message: /both --tls-cert and --tls-key/,
    });
  });

  it.each([
    [['--port', 'x'], /--port \(TORPOR_PORT\)/],
    [['--port', '65536'], /--port/],
    [['--runtime', 'docker'], /--runtime/],
    [['--database', 'mysql://x'], /--database/],
    [['--domain', 'a b'], /--domain/],
    [['--prot', '1'], /--prot/],
    [['up'], /up/],
  ])('refuses %j and names its source', async (argv, message) => {
    expect(await refusal(argv)).toMatchObject({ code: 'invalid_request', message });
  });

  it('refuses a file with an unknown key or that is not JSON', async () => {
    await file({ prot: 1 });
    expect(await refusal([])).toMatchObject({ message: /torpor.config.json: "prot"/ });
    await file('{');
    expect(await refusal([])).toMatchObject({ message: /is not JSON/ });
    await file({});
  });

  it('refuses a host that other machines can reach when no key is configured', async () => {
    expect(await refusal(['--host', '0.0.0.0'])).toMatchObject({
      code: 'invalid_request',
      hint: /TORPOR_API_KEY/,
    });
    expect(await read(['--host', '0.0.0.0'], { TORPOR_API_KEY: KEY })).toMatchObject({ host: '0.0.0.0' });
    expect(await refusal([], { TORPOR_API_KEY: 'secret' })).toMatchObject({ message: /64 hexadecimal/ });
  });
});

describe('fault injection', () => {
  const passing = async (env: NodeJS.ProcessEnv, times: number) => {
    let deaths = 0;
    const faults = faultsFrom(env, () => deaths++);
    for (let i = 0; i < times; i++) {
      void faults.pass('pause.seal-frozen');
      void faults.pass('pause.seal-captured');
    }
    return deaths;
  };

  it('kills the process at the requested pass', async () => {
    const env = { TORPOR_FAULTS: '1', TORPOR_FAULT: 'pause.seal-captured:3' };
    expect([await passing(env, 2), await passing(env, 3)]).toEqual([0, 1]);
  });

  it('never resolves after it has killed the process', async () => {
    const faults = faultsFrom({ TORPOR_FAULTS: '1', TORPOR_FAULT: 'pause.seal-captured' }, () => {});
    const passed = Promise.resolve(faults.pass('pause.seal-captured')).then(() => 'went on');
    expect(await Promise.race([passed, Promise.resolve('stood still')])).toBe('stood still');
  });

  it('does nothing without TORPOR_FAULTS=1, and refuses an invalid fault point', async () => {
    expect(await passing({ TORPOR_FAULT: 'pause.seal-captured' }, 1)).toBe(0);
    expect(() => faultsFrom({ TORPOR_FAULTS: '1', TORPOR_FAULT: 'now' }, () => {})).toThrow(
      /names no fault point/,
    );
  });
});
