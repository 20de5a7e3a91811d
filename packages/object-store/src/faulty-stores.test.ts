/** A real S3 server behind a proxy that makes it faulty: each fault has its own error, within a bound. */
import { randomBytes } from 'node:crypto';
import { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { FaultProxy, type ProxyFault } from '../testing/fault-proxy.ts';
import { environmentFor, type LabS3, labMissing, startLabS3 } from '../testing/lab.ts';
import { makeDataKeys } from './data-keys.ts';
import { EncryptedObjects } from './encrypted-objects.ts';
import type { StoreLimits } from './object-store.ts';
import { openObjectStore } from './open-object-store.ts';
import { probeObjectStore } from './probe.ts';
import { faultOf } from './store-failure.ts';
import { Throttle } from './throttle.ts';

const PATIENT = { callMs: 20_000, stallMs: 20_000, minBytesPerSecond: 10_000 };
/** Short where a test waits for them to pass. */
const LIMITS: Partial<Record<ProxyFault, StoreLimits>> = {
  hang: { ...PATIENT, callMs: 300 },
  drip: { ...PATIENT, callMs: 1_500 },
};
const reason = labMissing === undefined ? '' : ` (skipped: ${labMissing})`;

describe.skipIf(labMissing !== undefined)(`a faulty S3 store${reason}`, () => {
  let s3: LabS3;
  let proxy: FaultProxy;
  let objects: EncryptedObjects;
  let open: (limits?: StoreLimits) => Promise<EncryptedObjects>;
  const bytes = randomBytes(100_000);
  const content = async function* () {
    yield bytes;
  };

  beforeAll(async () => {
    s3 = await startLabS3();
    proxy = await FaultProxy.open(s3.port);
    const keys = await makeDataKeys(`${s3.files}/../data-key`);
    const env = environmentFor(proxy.endpoint);
    open = async (limits = PATIENT) =>
      new EncryptedObjects(await openObjectStore(`s3://${s3.bucket}/p`, env, limits), keys, new Throttle(0));
    objects = await open();
  }, 30_000);
  beforeEach(() => {
    proxy.fault = 'none';
    proxy.methods = [];
  });
  afterAll(async () => {
    await proxy.close();
    await s3.stop();
  });

  const failureOf = async (work: Promise<unknown>): Promise<TorporError> => {
    const thrown = await work.then(
      () => undefined,
      (error: unknown) => error,
    );
    if (!(thrown instanceof TorporError)) throw new Error(`not a typed error: ${String(thrown)}`);
    return thrown;
  };

  const reads: readonly [ProxyFault, string, string][] = [
    ['hang', 'hanging', 'timeout'],
    ['drip', 'slow', 'timeout'],
    ['forbid', 'refusing', 'forbidden'],
    ['skew', 'clock_skew', 'forbidden'],
    ['fail', 'failing', 'unreachable'],
    ['forget', 'missing', 'checkpoint_missing'],
    ['no-bucket', 'no_bucket', 'not_found'],
    ['cut', 'cut', 'unreachable'],
    ['truncate', 'lying', 'checkpoint_corrupt'],
    ['change', 'lying', 'checkpoint_corrupt'],
  ];
  it.each(reads)(
    'that does "%s" fails a read as %s (%s), with bucket and key (R91)',
    async (fault, name, code) => {
      const stored = await objects.put(`kind/read-${fault}`, content());
      proxy.fault = fault;
      const reader = await open(LIMITS[fault]);
      const failure = await failureOf(Array.fromAsync(reader.get(`kind/read-${fault}`, stored)));
      expect([faultOf(failure), failure.code]).toEqual([name, code]);
      expect(JSON.stringify(failure.toBody().details)).toContain(`p/kind/read-${fault}`);
    },
  );

  const writes: readonly [ProxyFault, string, string][] = [
    ['hang', 'hanging', 'timeout'],
    ['forbid', 'refusing', 'forbidden'],
    ['fail', 'failing', 'unreachable'],
    ['no-bucket', 'no_bucket', 'not_found'],
  ];
  it.each(writes)(
    'that does "%s" fails a write as %s (%s) and shows no object',
    async (fault, name, code) => {
      proxy.fault = fault;
      const writer = await open(LIMITS[fault]);
      const failure = await failureOf(writer.put(`kind/write-${fault}`, content()));
      expect([faultOf(failure), failure.code]).toEqual([name, code]);
      expect(failure.toBody().details).toMatchObject({ bucket: s3.bucket, key: `p/kind/write-${fault}` });
      proxy.fault = 'none';
      expect(await objects.store.head(`kind/write-${fault}`)).toBeUndefined();
    },
  );

  it('that fails an attempt gets the whole piece again, after it gave way as well', async () => {
    let asked = 0;
    const stored = await objects.put('kind/again', content(), undefined, async () => {
      // The content has given way once, and the piece is being sent.
      proxy.fault = ++asked === 2 ? 'fail' : 'none';
    });
    expect(asked).toBeGreaterThan(2);
    expect(Buffer.concat(await Array.fromAsync(objects.get('kind/again', stored))).equals(bytes)).toBe(true);
  });

  it('that hangs while an upload gives way is found out after that', async () => {
    const writer = await open(LIMITS.hang);
    let asked = 0;
    const failure = await failureOf(
      writer.put('kind/hanging', content(), undefined, async () => {
        if (++asked === 2) proxy.fault = 'hang';
      }),
    );
    expect([faultOf(failure), failure.code]).toEqual(['hanging', 'timeout']);
  });

  it('that takes an upload and does not have it fails the write', async () => {
    proxy.fault = 'forget';
    proxy.methods = ['HEAD'];
    const failure = await failureOf(objects.put('kind/vanished', content()));
    expect([faultOf(failure), failure.code]).toEqual(['missing', 'checkpoint_missing']);
  });

  it('that nothing listens for is unreachable', async () => {
    const closed = await openObjectStore(`s3://${s3.bucket}`, environmentFor('http://127.0.0.1:9'), PATIENT);
    expect(faultOf(await failureOf(closed.head('kind/object')))).toBe('unreachable');
  });

  it('refuses wrong credentials', async () => {
    const env = { ...s3.env, AWS_SECRET_ACCESS_KEY: 'wrong' };
    const store = await openObjectStore(`s3://${s3.bucket}`, env, PATIENT);
    expect(faultOf(await failureOf(probeObjectStore(store)))).toBe('refusing');
  });

  it('is probed by writing, listing, reading and deleting one object', async () => {
    await probeObjectStore(objects.store);
    expect(await Array.fromAsync(objects.store.list('probe/'))).toEqual([]);
    proxy.fault = 'forbid';
    proxy.methods = ['DELETE'];
    expect(faultOf(await failureOf(probeObjectStore(objects.store)))).toBe('refusing');
  });

  it('keeps no pieces of an upload that was broken off, once its key is deleted', async () => {
    const killed = new AbortController();
    const big = async function* () {
      for (let i = 0; i < 3; i++) yield randomBytes(8 * 1024 ** 2);
      // From here on nothing reaches the store, as after a kill.
      proxy.fault = 'hang';
      yield randomBytes(8 * 1024 ** 2);
      killed.abort(new TorporError('timeout', 'killed'));
      yield randomBytes(8 * 1024 ** 2);
    };
    await failureOf(objects.put('kind/interrupted', big(), killed.signal));
    proxy.fault = 'none';
    proxy.requests.length = 0;
    await objects.store.delete('kind/interrupted');
    expect(proxy.requests.some((one) => one.startsWith('DELETE') && one.includes('uploadId='))).toBe(true);
    // The server may still have written a piece whose request was broken off, after it had answered the first deletion.
    const findsPieces = async () => {
      proxy.requests.length = 0;
      await objects.store.delete('kind/interrupted');
      return proxy.requests.some((one) => one.includes('uploadId='));
    };
    await expect.poll(findsPieces).toBe(false);
  });
});
