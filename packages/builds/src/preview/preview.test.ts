import { databaseKinds, ManualClock, settle } from '@torpor/engine/testing';
import { type JobId, type SandboxState, TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type BuildWorld, buildWorld, emptyBuilds, OWNER } from '../../testing/build-world.ts';
import { type FakeFault, throwing } from '../../testing/fake-provider.ts';
import { PORT, readyBuild } from '../../testing/ready-build.ts';
import { readFiles, storeFiles } from '../jobs/stored-files.ts';
import { textFile } from '../runners/generated-files.ts';

const GONE = new TorporError('not_found', 'There is no such sandbox.');
const BY_GATEWAY = { 'torpor-answered-by': 'gateway' };
class NotFoundException extends Error {
  override readonly name = 'NotFoundException';
}

describe.each(databaseKinds)('the preview of a build on %s', (kind) => {
  let world: BuildWorld;
  let broken = false;
  const clock = new ManualClock();
  beforeAll(async () => {
    world = await buildWorld(kind, {
      clock,
      working: false,
      settings: { liveMs: 10_000 },
      wrap: (db) => ({
        ...db,
        dialect: db.dialect,
        query: (...given) => db.query(...given),
        listen: (...given) => db.listen(...given),
        close: () => db.close(),
        transaction: (work) =>
          broken
            ? Promise.reject(new TorporError('unreachable', 'The database is away.'))
            : db.transaction(work),
      }),
    });
  });
  beforeEach(async () => {
    broken = false;
    await emptyBuilds(world.db);
    world.provider.sandboxes.clear();
    world.provider.answer = () => ({ status: 200, headers: {} });
    world.provider.host = 'preview.test';
    world.reported.length = 0;
  });
  afterAll(() => world.dispose());

  const ready = (options: { paused?: boolean } = {}) => readyBuild(world, options);
  const resume = (id: JobId) => settle(clock, world.builds.resume(OWNER, id));
  const calls = () =>
    world.provider.calls
      .map(({ call }) => call)
      .filter((call) => call !== 'requestPreview' && call !== 'find');
  /** The columns that these tests compare. */
  const shown = async (id: JobId) => {
    const { sandboxPaused, previewUrl, updatedAt, status, lastEvent } = await world.row(id);
    return { sandboxPaused, previewUrl, updatedAt, status, lastEvent };
  };
  /** PostgreSQL answers in real time, which a manual clock does not control. */
  const itWithManualClock = it.skipIf(kind === 'postgres');

  describe('resume', () => {
    itWithManualClock(
      'connects, sets the lifetime, kills left-over processes, starts the server and waits until it answers (R27, R28, R31, R50)',
      async () => {
        const { id, sandboxId } = await ready();
        expect(await resume(id)).toEqual({
          preview_url: `https://${PORT}-${sandboxId.slice(4)}.preview.test`,
          sandbox_id: sandboxId,
        });
        expect(calls()).toEqual(['connect', 'setLifetime', 'processes', 'endProcess', 'startServices']);
        expect(world.provider.calls.at(-1)?.call).toBe('requestPreview');
        // The old dev server is gone, and a new one runs.
        expect([...(world.provider.sandboxes.get(sandboxId)?.processes.keys() ?? [])]).toHaveLength(1);
      },
    );

    itWithManualClock(
      'keeps a dev server that was resumed with its memory and answers (R28, R31)',
      async () => {
        const { id, sandboxId } = await ready();
        const sandbox = world.provider.sandboxes.get(sandboxId);
        if (sandbox !== undefined) sandbox.keepsMemory = true;
        await resume(id);
        expect(calls()).toEqual(['connect', 'setLifetime']);
      },
    );

    itWithManualClock('sets the lifetime to an hour after every connect (R29)', async () => {
      const { id, sandboxId } = await ready();
      await resume(id);
      expect(world.provider.sandboxes.get(sandboxId)?.lifetimeSeconds).toBe(3_600);
      world.provider.fail('startServices', throwing(new Error('once')));
      world.provider.answer = (_, since) => ({ status: since < 0 ? 200 : 502, headers: {} });
      const again = world.builds.resume(OWNER, id).catch(() => {});
      await settle(clock, again);
      expect(world.provider.sandboxes.get(sandboxId)?.lifetimeSeconds).toBe(3_600);
    });

    itWithManualClock.each([
      ['cannot be listed', 'processes'],
      ['cannot be ended', 'endProcess'],
    ] as const)('does not fail when processes %s (R30)', async (_, call) => {
      const { id } = await ready();
      world.provider.fail(call, throwing(new Error('no')));
      expect(await resume(id)).toMatchObject({ sandbox_id: expect.stringContaining('sbx_') });
    });

    itWithManualClock('tries twice, five seconds apart (R32)', async () => {
      const { id } = await ready();
      world.provider.fail('connect', throwing(new TorporError('unreachable', 'away')));
      expect(await resume(id)).toMatchObject({ preview_url: expect.any(String) });
      const [first, second] = world.provider.named('connect').map(({ at }) => at);
      expect((second ?? 0) - (first ?? 0)).toBe(5_000);
    });

    itWithManualClock('waits for an application that answers 502 for three seconds (R7)', async () => {
      const { id } = await ready();
      world.provider.answer = (_, since) => ({ status: since < 3_000 ? 502 : 200, headers: {} });
      await resume(id);
      expect(world.provider.named('connect')).toHaveLength(1);
    });

    const expired: readonly (readonly [string, unknown])[] = [
      ['a typed not-found', GONE],
      ['a typed end', new TorporError('killed', 'It was killed.')],
      ['an answer with 404', Object.assign(new Error('Not Found'), { status: 404 })],
      ['a not-found class', new NotFoundException('whatever it says')],
      ['the message of a provider', new Error('Sandbox abc123 not found')],
      [
        'one of these errors as a cause',
        new Error('could not connect', { cause: new Error('deeper', { cause: GONE }) }),
      ],
    ];
    itWithManualClock.each(expired)(
      'reports expired for %s, without a second attempt (R33, R34, R36, R39)',
      async (_, error) => {
        const { id } = await ready();
        const before = await shown(id);
        world.provider.fail('connect', throwing(error));
        await expect(resume(id)).rejects.toMatchObject({ errorType: 'sandbox_expired', code: 'expired' });
        expect(world.provider.named('connect')).toHaveLength(1);
        expect(await shown(id)).toEqual(before);
      },
    );

    const permanent: readonly (readonly [string, TorporError])[] = [
      [
        'a corrupt checkpoint',
        new TorporError('checkpoint_corrupt', 'ckpt_a is damaged.', { checkpointId: 'ckpt_a' }),
      ],
      ['a missing checkpoint', new TorporError('checkpoint_missing', 'ckpt_a is not there.')],
      ['an unusable checkpoint', new TorporError('checkpoint_incompatible', 'ckpt_a is of another build.')],
      ['a lost sandbox', new TorporError('lost', 'Nothing usable is left.')],
      ['a missing runtime', new TorporError('capability_unsupported', 'There is no such runtime.')],
      [
        'a sandbox that is unreachable for good',
        new TorporError('unreachable', 'Removed.', { retryable: false }),
      ],
    ];
    itWithManualClock.each(permanent)(
      'reports expired for %s, with the code and message of the platform (R34, R36, R48)',
      async (_, error) => {
        const { id } = await ready();
        world.provider.fail('connect', throwing(error));
        await expect(resume(id)).rejects.toMatchObject({
          errorType: 'sandbox_expired',
          retryable: false,
          platform: { code: error.code, message: error.message },
        });
        expect(world.provider.named('connect')).toHaveLength(1);
      },
    );

    const temporary: readonly (readonly [string, TorporError])[] = [
      ['an unreadable checkpoint', new TorporError('checkpoint_unreadable', 'The store hangs.')],
      ['a full machine', new TorporError('capacity', 'Full.')],
      ['a read-only disk', new TorporError('storage_readonly', 'Read-only.')],
      ['a fault of the server', new TorporError('internal', 'A bug.')],
    ];
    itWithManualClock.each(temporary)(
      'reports unreachable for %s, with the code and message of the platform (R35, R36)',
      async (_, error) => {
        const { id } = await ready();
        world.provider.fail('connect', throwing(error), throwing(error));
        await expect(resume(id)).rejects.toMatchObject({
          errorType: 'sandbox_unreachable',
          retryable: true,
          platform: { code: error.code, message: error.message },
        });
      },
    );

    itWithManualClock("does not take the gateway's answer for the application's (R7, R27)", async () => {
      const { id } = await ready();
      world.provider.answer = (_, since) =>
        since < 3_000 ? { status: 409, headers: BY_GATEWAY } : { status: 404, headers: {} };
      const before = clock.now();
      await resume(id);
      expect(clock.now() - before).toBeGreaterThanOrEqual(3_000);
    });

    const unreachable: readonly (readonly [string, 'connect' | 'startServices' | 'setLifetime', unknown])[] =
      [
        ['a command that is not found', 'startServices', new Error('sh: 1: vite: command not found')],
        [
          'a command that is not found, when connecting',
          'connect',
          new Error('bash: npm: command not found'),
        ],
        ['an id with 404 in it', 'connect', new Error('sandbox i404abc timed out')],
        ['a 404 of the application', 'startServices', Object.assign(new Error('GET / 404'), { status: 404 })],
        ['a typed not-found of a file', 'startServices', new TorporError('not_found', 'no such file')],
        ['a time-out', 'connect', new TorporError('timeout', 'It took too long.')],
        ['a refused lifetime', 'setLifetime', Object.assign(new Error('Bad Gateway'), { status: 502 })],
        ['something unknown', 'connect', 'a text'],
      ];
    itWithManualClock.each(unreachable)(
      'reports unreachable for %s, after two attempts (R35, R36, R39)',
      async (_, call, error) => {
        const { id } = await ready();
        const before = await shown(id);
        world.provider.fail(call, throwing(error), throwing(error));
        await expect(resume(id)).rejects.toMatchObject({ errorType: 'sandbox_unreachable' });
        expect(world.provider.named('connect')).toHaveLength(2);
        expect(await shown(id)).toEqual(before);
      },
    );

    itWithManualClock('records that the preview runs, and its URL (R37, R40)', async () => {
      const { id, sandboxId } = await ready();
      clock.advance(1_000);
      world.provider.host = 'elsewhere.test';
      const { preview_url } = await resume(id);
      expect(preview_url).toBe(`https://${PORT}-${sandboxId.slice(4)}.elsewhere.test`);
      expect(await world.row(id)).toMatchObject({
        sandboxPaused: 0,
        previewUrl: preview_url,
        updatedAt: clock.now(),
      });
      expect(await world.builds.status(OWNER, id)).toMatchObject({ sandbox_paused: false, preview_url });
    });

    itWithManualClock(
      'answers although the database fails, and the row is corrected later (R38)',
      async () => {
        const { id } = await ready();
        broken = true;
        expect(await resume(id)).toMatchObject({ preview_url: expect.any(String) });
        expect(world.reported.at(-1)?.what).toContain('was not recorded');
        broken = false;
        expect((await world.row(id)).sandboxPaused).toBe(1);
        expect((await world.builds.status(OWNER, id)).sandbox_paused).toBe(false);
        expect((await world.row(id)).sandboxPaused).toBe(0);
      },
    );

    itWithManualClock('works for a running preview, any number of times (R45)', async () => {
      const { id } = await ready({ paused: false });
      for (let i = 0; i < 3; i++) expect(await resume(id)).toMatchObject({ preview_url: expect.any(String) });
    });

    it('is done once for twenty concurrent callers, with one answer (R46)', async () => {
      const { id } = await ready();
      const all = Array.from({ length: 20 }, () => world.builds.resume(OWNER, id));
      const answers = await Promise.all(all);
      expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
      expect(world.provider.named('connect')).toHaveLength(1);
    });

    it('and a concurrent snapshot end in one state, the same in row and sandbox (R46)', async () => {
      const { id, sandboxId } = await ready();
      for (let round = 0; round < 5; round++) {
        await Promise.all([
          world.builds.resume(OWNER, id),
          world.builds.snapshot(OWNER, id),
          world.builds.resume(OWNER, id),
          world.builds.snapshot(OWNER, id),
        ]);
        const paused = world.provider.sandboxes.get(sandboxId)?.state === 'paused';
        expect((await world.row(id)).sandboxPaused).toBe(paused ? 1 : 0);
        expect((await world.builds.status(OWNER, id)).sandbox_paused).toBe(paused);
      }
    });
  });

  describe('snapshot', () => {
    it('answers the same any number of times, and resumes nothing (R41, R43, R50)', async () => {
      const { id } = await ready({ paused: false });
      for (let i = 0; i < 10; i++) {
        expect(await world.builds.snapshot(OWNER, id)).toEqual({
          job_id: id,
          paused: true,
          snapshot: {
            outcome: i === 0 ? 'paused' : 'already_paused',
            checkpoint_id: expect.stringContaining('ckpt_'),
          },
        });
      }
      expect(world.provider.named('pause')).toHaveLength(1);
      expect(world.provider.named('connect')).toEqual([]);
      expect((await world.row(id)).sandboxPaused).toBe(1);
    });

    const faults: readonly (readonly [string, 'pause' | 'find', FakeFault])[] = [
      ['the pause fails', 'pause', throwing(new TorporError('unreachable', 'away'))],
      ['the sandbox cannot be read', 'find', throwing(new TorporError('timeout', 'slow'))],
      [
        'the runtime cannot pause',
        'pause',
        throwing(new TorporError('capability_unsupported', 'pods cannot')),
      ],
    ];
    it.each(faults)(
      'answers 200 with the outcome "failed" when %s, and changes no flag (R42)',
      async (_, call, fault) => {
        const { id } = await ready({ paused: false });
        world.provider.fail(call, fault);
        expect(await world.builds.snapshot(OWNER, id)).toMatchObject({
          job_id: id,
          paused: true,
          snapshot: { outcome: 'failed', error: expect.any(String) },
        });
        expect((await world.row(id)).sandboxPaused).toBe(0);
        expect((await world.builds.status(OWNER, id)).sandbox_paused).toBe(false);
      },
    );
  });

  describe('a missing or unfinished build', () => {
    it('is answered with not found or not ready (R44, R50)', async () => {
      const { id } = await ready();
      const other = { org: OWNER.org, user: 'bob' };
      const waiting = (await world.builds.begin(OWNER, { project_id: 'p', goal: 'g' })).job_id;
      for (const verb of ['resume', 'snapshot'] as const) {
        const ask = (owner: { org: string; user: string }, job: string) => world.builds[verb](owner, job);
        await expect(ask(other, id)).rejects.toMatchObject({ code: 'not_found', message: 'Job not found' });
        await expect(ask({ org: 'else', user: OWNER.user }, id)).rejects.toMatchObject({ code: 'not_found' });
        await expect(ask(OWNER, 'job_00000000000000000000')).rejects.toMatchObject({ code: 'not_found' });
        await expect(ask(OWNER, 'nonsense')).rejects.toMatchObject({ code: 'not_found' });
      }
      await expect(world.builds.resume(OWNER, waiting)).rejects.toThrow(
        'No sandbox_id associated with this job',
      );
      await expect(world.builds.snapshot(OWNER, waiting)).rejects.toThrow(
        "Cannot snapshot job in state 'queued'. Job must be READY.",
      );
    });
  });

  describe('the lifetime', () => {
    it('is shown while the preview runs, and absent while it is paused (R49)', async () => {
      const { id } = await ready({ paused: false });
      expect((await world.builds.status(OWNER, id)).sandbox_expires_at).toBe(
        new Date(clock.now() + 3_600_000).toISOString(),
      );
      await world.builds.snapshot(OWNER, id);
      expect((await world.builds.status(OWNER, id)).sandbox_expires_at).toBeNull();
    });
  });

  describe('the state of the sandbox', () => {
    const states: readonly (readonly [SandboxState, string])[] = [
      ['running', 'running'],
      ['pausing', 'running'],
      ['paused', 'paused'],
      ['killed', 'expired'],
      ['lost', 'expired'],
      ['failed', 'expired'],
    ];
    it.each(states)(
      'is shown for a sandbox that is %s as %s, before any resume (R10, R49)',
      async (state, shownAs) => {
        const { id, sandboxId } = await ready();
        const sandbox = world.provider.sandboxes.get(sandboxId);
        if (sandbox !== undefined) sandbox.state = state;
        const expired = shownAs === 'expired';
        const expected = {
          sandbox_state: shownAs,
          expired,
          sandbox_reason: expired ? expect.any(String) : null,
          sandbox_paused: shownAs === 'paused',
        };
        expect(await world.builds.status(OWNER, id)).toMatchObject(expected);
        expect((await world.builds.list(OWNER, 1e9, 1)).items).toMatchObject([expected]);
      },
    );

    it('is expired when the sandbox does not exist any more (R49)', async () => {
      const { id } = await ready();
      world.provider.sandboxes.clear();
      expect(await world.builds.status(OWNER, id)).toMatchObject({
        sandbox_state: 'expired',
        expired: true,
        sandbox_paused: false,
        sandbox_expires_at: null,
      });
    });

    it('is expired when its start has failed, and unknown when its checkpoint is only damaged (R34, R49)', async () => {
      const { id, sandboxId } = await ready();
      const sandbox = world.provider.sandboxes.get(sandboxId);
      if (sandbox === undefined) throw new Error('There is no sandbox.');
      sandbox.damage = { sure: true, reason: 'The checkpoint is damaged.' };
      expect(await world.builds.status(OWNER, id)).toMatchObject({
        sandbox_state: 'expired',
        sandbox_reason: 'The checkpoint is damaged.',
        sandbox_paused: false,
      });
      sandbox.damage = { sure: false, reason: 'The checkpoint is damaged.' };
      expect(await world.builds.status(OWNER, id)).toMatchObject({
        sandbox_state: 'unknown',
        expired: false,
        sandbox_reason: 'The checkpoint is damaged.',
        sandbox_paused: true,
      });
    });

    it('is unknown while the sandbox cannot be read (R49)', async () => {
      const { id } = await ready();
      world.provider.fail('find', throwing(new TorporError('timeout', 'It took too long.')));
      expect(await world.builds.status(OWNER, id)).toMatchObject({
        sandbox_state: 'unknown',
        expired: false,
        sandbox_reason: 'It took too long.',
        sandbox_paused: true,
      });
    });

    it('is null for a build that has no sandbox', async () => {
      const { job_id } = await world.builds.begin(OWNER, { project_id: 'p', goal: 'g' });
      expect(await world.builds.status(OWNER, job_id)).toMatchObject({
        sandbox_state: null,
        expired: false,
        sandbox_reason: null,
      });
    });
  });

  describe('rebuild', () => {
    it('makes a new job from the same files, and leaves the old one unchanged (R48)', async () => {
      const { id } = await ready();
      await world.db.transaction((tx) => storeFiles(tx, id, [textFile('package.json', '{}')]));
      world.provider.sandboxes.clear();
      const before = await world.row(id);
      const { job_id, build_version } = await world.builds.rebuild(OWNER, id);
      expect(build_version).toBe('build_v0_2');
      expect(await world.row(job_id)).toMatchObject({
        goal: before.goal,
        previousId: id,
        previousKind: 'rebuild',
      });
      expect(await world.row(id)).toEqual(before);
      expect(await readFiles(world.db, id)).toHaveLength(1);
    });
  });

  describe('the check for embedding', () => {
    it.each([
      [{}, true, null],
      [{ 'x-frame-options': 'deny' }, false, 'X-Frame-Options is DENY'],
      [{ 'x-frame-options': 'SAMEORIGIN' }, false, 'X-Frame-Options is SAMEORIGIN'],
      [
        { 'content-security-policy': "default-src 'self'; frame-ancestors 'none'" },
        false,
        expect.any(String),
      ],
      [{ 'content-security-policy': "frame-ancestors 'self' https://app.test" }, true, null],
    ])('reads the headers: %j', async (headers, embeddable, reason) => {
      const { id } = await ready({ paused: false });
      world.provider.answer = () => ({ status: 200, headers: headers as Record<string, string> });
      expect(await world.builds.previewCheck(OWNER, id)).toMatchObject({ embeddable, reason });
    });

    it('reports that the sandbox has expired, without resuming it (R7, R34)', async () => {
      const { id, sandboxId } = await ready();
      await world.provider.kill(OWNER.org, sandboxId);
      expect(await world.builds.previewCheck(OWNER, id)).toMatchObject({
        embeddable: false,
        reason: 'Sandbox expired: it was killed.',
      });
      expect(world.provider.named('requestPreview')).toEqual([]);
    });

    it("does not read the gateway's headers as the application's (R7)", async () => {
      const { id } = await ready({ paused: false });
      world.provider.answer = () => ({ status: 409, headers: BY_GATEWAY });
      expect(await world.builds.previewCheck(OWNER, id)).toMatchObject({
        embeddable: false,
        reason: 'Sandbox unreachable (may have expired)',
      });
    });

    it('reports that a sandbox does not answer', async () => {
      const { id } = await ready({ paused: false });
      world.provider.fail(
        'requestPreview',
        throwing(new TorporError('unreachable', 'no')),
        throwing(new Error('?')),
      );
      const check = () => world.builds.previewCheck(OWNER, id);
      expect(await check()).toMatchObject({ reason: 'Sandbox unreachable (may have expired)' });
      expect(await check()).toMatchObject({ reason: 'Unable to verify preview' });
    });
  });
});
