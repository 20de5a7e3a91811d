import { systemClock } from '@torpor/engine';
import { databaseKinds, ManualClock, settle } from '@torpor/engine/testing';
import { type JobId, TorporError } from '@torpor/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import {
  APP,
  type BuildWorld,
  type BuildWorldOptions,
  buildWorld,
  OWNER,
} from '../../testing/build-world.ts';
import { throwing } from '../../testing/fake-provider.ts';
import type { Builds } from '../builds.ts';
import { BUILD_POINTS } from '../context.ts';
import { textFile } from '../runners/generated-files.ts';

const ALL = ['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'];
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const QUICK = { firstLookMs: 1, longestLookMs: 5, liveMs: 2_000, upkeepMs: 20 };

let world: BuildWorld;
afterEach(() => world.dispose());

async function open(options: BuildWorldOptions = {}, kind: (typeof databaseKinds)[number] = 'sqlite') {
  world = await buildWorld(kind, { ...options, settings: { ...QUICK, ...options.settings } });
  return world;
}
const begin = async (more: object = {}) =>
  (await world.builds.begin(OWNER, { project_id: 'site', goal: 'a site', ...more })).job_id;
const logOf = async (id: JobId) =>
  (await world.builds.logPage(OWNER, id, { limit: 500 })).lines.map(({ text }) => text).join('\n');

describe.each(databaseKinds)('a build on %s', (kind) => {
  it('passes its states, and row and status agree (R1, R10, R13, R15, R24, R25)', async () => {
    await open({}, kind);
    const id = await begin();
    const job = await world.ended(id);
    expect(await world.statesOf(id)).toEqual(ALL);
    const sandboxId = job.sandboxId ?? 'sbx_none';
    expect(job).toMatchObject({
      status: 'ready',
      buildVersion: 'build_v0_1',
      workspacePath: '/home/user/project',
      previewUrl: `https://3000-${sandboxId.slice(4)}.preview.test`,
    });
    const completed = (await world.eventsOf(id)).filter(({ type }) => type === 'build.stage.completed');
    expect(completed.map(({ stage }) => stage)).toEqual(ALL.slice(0, -1));
    const ready = (await world.eventsOf(id)).find(({ status }) => status === 'ready');
    expect(JSON.parse(ready?.message ?? '')).toEqual({
      message: 'Build complete!',
      preview_url: job.previewUrl,
    });
    await expect.poll(async () => (await world.row(id)).sandboxPaused).toBe(1);
    expect(await world.builds.status(OWNER, id)).toMatchObject({
      status: 'ready',
      stage_label: 'Build complete!',
      sandbox_id: job.sandboxId,
      preview_url: job.previewUrl,
      build_version: 'build_v0_1',
      workspace_path: '/home/user/project',
      sandbox_paused: true,
      sandbox_expires_at: null,
      error_message: null,
      debug_id: null,
    });
    expect((await world.eventsOf(id)).at(-1)).toMatchObject({ type: 'snapshot.updated' });
  });
});

describe('a server that stops during the pause after ready', () => {
  it('returns the job to the queue; the next server pauses the preview (R20, R24)', async () => {
    const { provider } = await open();
    const asked = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    provider.fail('pause', () => {
      asked.resolve();
      return held.promise;
    });
    const id = await begin();
    await asked.promise;
    const stopped = world.builds.stop();
    held.reject(new TorporError('unreachable', 'The server stops.'));
    await stopped;
    const { sandboxId, ...row } = await world.row(id);
    expect(row).toMatchObject({ status: 'ready', sandboxPaused: 0, pauseSettled: 0 });
    expect(provider.live.map((one) => one.id)).toEqual([sandboxId]);
    await world.another({ serverId: 'next' }).start();
    await expect.poll(async () => (await world.row(id)).pauseSettled).toBe(1);
    expect(await world.row(id)).toMatchObject({ status: 'ready', sandboxPaused: 1 });
  });
});

describe('a build on a runtime with fewer capabilities', () => {
  it('stays ready with a running preview where the runtime cannot pause, and says why (R26, R49)', async () => {
    const { provider } = await open();
    provider.can = { pause: 'none', fork: false };
    const id = await begin();
    await world.ended(id);
    await expect.poll(async () => (await world.row(id)).pauseSettled).toBe(1);
    expect(provider.named('pause')).toEqual([]);
    expect(await world.row(id)).toMatchObject({ status: 'ready', sandboxPaused: 0 });
    expect((await world.eventsOf(id)).at(-1)).toMatchObject({
      type: 'snapshot.failed',
      message: expect.stringContaining('cannot pause'),
    });
    expect(await world.builds.status(OWNER, id)).toMatchObject({
      sandbox_state: 'running',
      sandbox_paused: false,
      sandbox_expires_at: expect.any(String),
    });
    expect(await logOf(id)).toContain('The runtime cannot pause');
    expect((await world.builds.snapshot(OWNER, id)).snapshot.outcome).toBe('failed');
  });

  it('iterates without a fork from the files of the previous build, and says what is lost (R5)', async () => {
    const { provider } = await open();
    provider.can = { pause: 'files', fork: false };
    const first = await begin();
    await world.ended(first);
    const second = await begin({ previous_job_id: first });
    expect((await world.ended(second)).status).toBe('ready');
    expect(await logOf(second)).toContain('The runtime cannot fork build_v0_1');
  });
});

describe('the stages of a build', () => {
  it('create the sandbox in deps with a lifetime of an hour, and pause it after ready (R4, R6, R24)', async () => {
    const { provider } = await open();
    const states: string[] = [];
    for (const call of ['create', 'publish', 'pause'] as const) {
      provider.fail(call, async () => {
        const [row] = await world.db.query<{ status: string }>('SELECT status FROM build_jobs');
        states.push(`${call} in ${row?.status}`);
      });
    }
    const id = await begin();
    await world.ended(id);
    await expect.poll(() => provider.named('pause')).toHaveLength(1);
    expect(states).toEqual(['create in deps', 'publish in checks', 'pause in ready']);
    expect(provider.named('create')[0]).toMatchObject({ detail: 3_600 });
    expect(provider.named('publish')[0]?.detail).toMatchObject({ name: 'dev-server', port: 3000 });
  });

  it('reach ready only when the application answers below 500 (R7)', async () => {
    const clock = new ManualClock();
    await open({
      clock,
      working: false,
      settings: { liveMs: 120_000, firstLookMs: 100, longestLookMs: 3_000 },
    });
    world.provider.answer = (_, since) => ({ status: since < 3_000 ? 502 : 404, headers: {} });
    const id = await begin();
    await world.builds.start();
    await settle(clock, world.ended(id));
    const { completedAt } = await world.row(id);
    const started = world.provider.named('publish')[0]?.at ?? 0;
    expect((completedAt ?? 0) - started).toBeGreaterThanOrEqual(3_000);
    expect((await world.row(id)).status).toBe('ready');
  });

  it('are passed without a runner, and nothing is created (R14)', async () => {
    await open({ runners: new Map() });
    const id = await begin({ runner: 'none' });
    expect(await world.ended(id)).toMatchObject({ status: 'ready', previewUrl: null, sandboxId: null });
    expect(await world.statesOf(id)).toEqual(ALL);
    expect(world.provider.named('create')).toEqual([]);
  });

  it('refuse a runner that the server does not have', async () => {
    await open();
    await expect(begin({ runner: 'openai' })).rejects.toMatchObject({ code: 'capability_unsupported' });
  });

  it('install the dependencies, and try again when the network failed', async () => {
    const manifest = { scripts: { start: 'x', check: 'the-check' }, dependencies: { left: '1' } };
    await open({
      run: async () => [textFile('package.json', JSON.stringify(manifest))],
      settings: { installRetryMs: 10 },
    });
    let tries = 0;
    world.provider.command = ({ command, output }) => {
      if (!command.startsWith('npm')) return 0;
      output('stderr', tries++ === 0 ? 'npm error code ECONNRESET\n' : 'added 1 package\n');
      return tries === 1 ? 1 : 0;
    };
    const id = await begin();
    expect((await world.ended(id)).status).toBe('ready');
    const commands = world.provider.named('run').map(({ detail }) => String(detail));
    expect(commands.filter((command) => command.startsWith('npm install'))).toHaveLength(2);
    expect(commands.at(-1)).toContain('the-check');
    expect(await logOf(id)).toContain('added 1 package');
  });

  it('do not retry the install for other failures', async () => {
    const manifest = { scripts: { start: 'x' }, dependencies: { left: '1' } };
    await open({ run: async () => [textFile('package.json', JSON.stringify(manifest))] });
    world.provider.command = ({ command }) => (command.startsWith('npm') ? 1 : 0);
    expect(await world.ended(await begin())).toMatchObject({
      status: 'failed',
      errorMessage: 'Installing the dependencies failed (exit 1).',
    });
    expect(world.provider.live).toEqual([]);
  });
});

describe('a build that fails', () => {
  const faults: readonly (readonly [where: string, last: string, how: () => Promise<unknown>])[] = [
    ['in the runner', 'code', () => open({ run: () => Promise.reject(new Error('a bug')) })],
    [
      'in creating the sandbox',
      'deps',
      async () => (await open()).provider.fail('create', throwing(new Error('no'))),
    ],
    [
      'in writing the files',
      'deps',
      async () => (await open()).provider.fail('write', throwing(new TorporError('storage_full', 'full'))),
    ],
    [
      'in the check that the sandbox runs commands',
      'checks',
      async () => (await open()).provider.fail('run', throwing(new TorporError('timeout', 'slow'))),
    ],
    [
      'in starting the preview',
      'checks',
      async () => (await open()).provider.fail('publish', throwing(new TorporError('conflict', 'ended'))),
    ],
    [
      'because the application never answers',
      'checks',
      async () => {
        await open({ settings: { liveMs: 50 } });
        world.provider.answer = () => ({ status: 500, headers: {} });
      },
    ],
  ];

  it.each(faults)(
    '%s has one debug id everywhere, one failed, and no sandbox (R11, R12, R18)',
    async (_, last, how) => {
      await how();
      const id = await begin();
      const job = await world.ended(id);
      expect(job.status).toBe('failed');
      expect(job.debugId).toMatch(UUID);
      const states = await world.statesOf(id);
      expect(states.slice(-2)).toEqual([last, 'failed']);
      expect(states.filter((state) => state === 'failed')).toHaveLength(1);
      const completed = (await world.eventsOf(id)).filter(({ type }) => type === 'build.stage.completed');
      expect(completed.map(({ stage }) => stage)).toEqual(states.slice(0, -2));
      const status = await world.builds.status(OWNER, id);
      expect(status).toMatchObject({
        debug_id: job.debugId,
        error_message: job.errorMessage,
        preview_url: null,
      });
      expect((await world.eventsOf(id)).at(-1)).toMatchObject({
        debug_id: job.debugId,
        message: `Build failed. debug_id: ${job.debugId}. ${job.errorMessage}`,
      });
      expect(await logOf(id)).toContain(`BUILD FAILED: ${job.errorMessage} debug_id: ${job.debugId}`);
      const told = world.reported.find(({ what }) => what === 'a build failed');
      expect(told?.facts).toMatchObject({ debugId: job.debugId, jobId: id });
      expect(world.provider.live).toEqual([]);
      // The worker wrote nothing more, and can take the next build.
      expect(await world.db.query(`SELECT id FROM queue_jobs WHERE ended_at IS NULL`)).toEqual([]);
    },
  );

  it.each([
    ['code without a package.json (R23)', [textFile('app.tsx', 'x')]],
    ['a path that leads out', [...APP, textFile('../x', 'x')]],
    ['nothing', []],
  ])('for %s creates no sandbox (R5)', async (_, files) => {
    await open({ run: async () => files as typeof APP });
    const id = await begin();
    expect((await world.ended(id)).status).toBe('failed');
    expect(await world.statesOf(id)).toEqual(['queued', 'starting', 'scaffold', 'code', 'failed']);
    expect(world.provider.named('create')).toEqual([]);
  });

  it('keeps its files and its log', async () => {
    await open();
    world.provider.fail('publish', throwing(new TorporError('conflict', 'ended')));
    const id = await begin();
    await world.ended(id);
    expect((await world.builds.files(OWNER, id)).map(({ path }) => path)).toEqual([
      'package.json',
      'server.mjs',
    ]);
  });

  it('reveals no internal details (R114)', async () => {
    await open({ run: () => Promise.reject(new Error('at /srv/secret/path: password=hunter2')) });
    const id = await begin();
    const { errorMessage } = await world.ended(id);
    expect(errorMessage).toBe('Something went wrong inside Torpor.');
    expect(await logOf(id)).not.toContain('hunter2');
  });

  it('shows the output of its dev server, without secrets', async () => {
    await open();
    const output = 'starting\nError: Cannot find module "x"\npassword=hunter2hunter2';
    const error = new TorporError('conflict', 'It ended: password=hunter2hunter2', { details: { output } });
    world.provider.fail('publish', throwing(error));
    const id = await begin();
    expect((await world.ended(id)).errorMessage).toBe('It ended: password=[redacted]');
    expect(await logOf(id)).toContain('Cannot find module');
    expect(await logOf(id)).not.toContain('hunter2');
  });

  it('because its runner takes too long says so', async () => {
    await open({
      settings: { runnerMs: 20 },
      run: (_, signal) =>
        new Promise((__, reject) => signal.addEventListener('abort', () => reject(new Error('left')))),
    });
    expect((await world.ended(await begin())).errorMessage).toContain('The runner took too long.');
  });

  it('has its sandboxes killed later when the first attempt failed (R18)', async () => {
    await open();
    world.provider.fail('publish', throwing(new TorporError('conflict', 'ended')));
    world.provider.fail(
      'kill',
      throwing(new TorporError('unreachable', 'away')),
      throwing(new TorporError('unreachable', 'away')),
    );
    expect((await world.ended(await begin())).status).toBe('failed');
    await expect.poll(() => world.provider.live).toEqual([]);
  });

  it('only in its pause is ready all the same, and reports a running preview (R26)', async () => {
    await open();
    world.provider.fail('pause', throwing(new TorporError('capability_unsupported', 'pods cannot')));
    const id = await begin();
    await world.ended(id);
    await expect
      .poll(() => world.reported.map(({ what }) => what))
      .toContain('the preview of a ready build was not paused');
    expect(await world.builds.status(OWNER, id)).toMatchObject({ status: 'ready', sandbox_paused: false });
    expect((await world.row(id)).sandboxPaused).toBe(0);
  });
});

describe('a build that is cancelled', () => {
  it.each(['code', 'deps', 'checks'])(
    'in %s stops, and nothing overwrites the cancellation (R18, R19)',
    async (stage) => {
      const held = Promise.withResolvers<void>();
      const there = Promise.withResolvers<void>();
      const wait = async () => {
        there.resolve();
        await held.promise;
      };
      await open({
        run: async () => {
          if (stage === 'code') await wait();
          return APP;
        },
      });
      if (stage === 'deps') world.provider.fail('create', wait);
      if (stage === 'checks') world.provider.fail('publish', wait);
      const id = await begin();
      await there.promise;
      expect((await world.row(id)).status).toBe(stage);
      expect(await world.builds.cancel(OWNER, id)).toMatchObject({ status: 'cancelled' });
      held.resolve();
      await expect.poll(async () => world.provider.live).toEqual([]);
      expect(await world.row(id)).toMatchObject({ status: 'failed', statusMessage: 'Cancelled by user' });
      // The next build proves that the worker has finished this one.
      await world.ended(await begin());
      expect((await world.statesOf(id)).filter((state) => state === 'failed')).toHaveLength(1);
      expect((await world.row(id)).status).toBe('failed');
      await expect(world.builds.cancel(OWNER, id)).rejects.toMatchObject({ code: 'conflict' });
      expect(world.provider.live.filter(({ jobId }) => jobId === id)).toEqual([]);
    },
  );

  it('aborts its runner at once', async () => {
    const told = Promise.withResolvers<void>();
    const there = Promise.withResolvers<void>();
    await open({
      run: (_, signal) =>
        new Promise((__, reject) => {
          there.resolve();
          signal.addEventListener('abort', () => {
            told.resolve();
            reject(signal.reason);
          });
        }),
    });
    const id = await begin();
    await there.promise;
    await world.builds.cancel(OWNER, id);
    await told.promise;
  });
});

/** Never resolves, except for 0 ms, which a stop with `stopWithinMs: 0` waits. */
function sleepForEver(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (ms === 0) resolve();
    signal?.addEventListener('abort', () => reject(signal.reason));
  });
}

describe('a build whose worker died', () => {
  /** A server that hangs forever when it reaches the point. */
  async function abandoned(point: (typeof BUILD_POINTS)[number], attempts = 3) {
    await open({ working: false, settings: { leaseMs: 300, pollMs: 50, attempts } });
    const there = Promise.withResolvers<void>();
    let runs = 0;
    const run = async () => {
      runs++;
      return APP;
    };
    const runners = new Map([['starter', { run }]] as const);
    const dead = world.another({
      // Its clock stands still, so that it never renews its lease.
      clock: { ...systemClock, sleep: sleepForEver },
      runners,
      settings: { ...world.ctx.settings, stopWithinMs: 0 },
      serverId: 'dead',
      pass: (passed) => {
        if (passed !== `build.${point}`) return undefined;
        there.resolve();
        return new Promise<never>(() => {});
      },
    });
    await dead.start();
    const next = world.another({ runners, serverId: 'alive' });
    return { there: there.promise, next, runs: () => runs, dead };
  }
  const endOf = async (next: Builds, id: JobId) => {
    const events = await next.followEvents(
      OWNER,
      id,
      { after: 0, until: 'over' },
      new AbortController().signal,
    );
    for await (const _ of events);
    return world.row(id);
  };
  const taken = () => world.db.query('SELECT id FROM build_jobs WHERE completed_at IS NULL');

  const ways = BUILD_POINTS.slice(0, BUILD_POINTS.indexOf('failing'));
  it.each(ways)('at "%s" is continued and becomes ready (R18, R20)', async (point) => {
    const { there, next, runs } = await abandoned(point);
    const id = await begin();
    await there;
    await next.start();
    expect((await endOf(next, id)).status).toBe('ready');
    const again = ['checks', 'published', 'live'].includes(point);
    expect(await world.statesOf(id)).toEqual(again ? [...ALL.slice(0, -1), ...ALL.slice(2)] : ALL);
    // Stored files of the runner are not generated twice.
    expect(runs()).toBe(point === 'generated' ? 2 : 1);
    await expect.poll(async () => (await world.row(id)).sandboxPaused).toBe(1);
    const { sandboxId } = await world.row(id);
    expect(world.provider.live.map((one) => one.id)).toEqual([sandboxId]);
    expect(await taken()).toEqual([]);
  });

  it.each(['failing', 'failed'] as const)(
    'at "%s" fails once, and leaves no sandbox (R18, R20)',
    async (point) => {
      const { there, next } = await abandoned(point);
      const away = throwing(new TorporError('conflict', 'It ended.'));
      world.provider.fail('publish', away, away);
      const id = await begin();
      await there;
      await next.start();
      expect(await endOf(next, id)).toMatchObject({ status: 'failed', debugId: expect.stringMatching(UUID) });
      const states = await world.statesOf(id);
      expect(states.filter((state) => state === 'failed')).toHaveLength(1);
      await expect.poll(() => world.provider.live).toEqual([]);
      expect(await taken()).toEqual([]);
    },
  );

  it('right after a cancel has its sandboxes killed by the next server (R18, R19)', async () => {
    const { there, next, dead } = await abandoned('cancelled');
    const held = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    world.provider.fail('write', async () => {
      written.resolve();
      await held.promise;
    });
    const id = await begin();
    await written.promise;
    void dead.cancel(OWNER, id);
    await there;
    expect(world.provider.live).toHaveLength(1);
    await next.start();
    await expect.poll(() => world.provider.live).toEqual([]);
    expect(await world.row(id)).toMatchObject({ status: 'failed', statusMessage: 'Cancelled by user' });
    held.resolve();
  });

  it('too often becomes failed, and frees its slots (R20)', async () => {
    const { there, next } = await abandoned('code', 1);
    const id = await begin();
    await there;
    await next.start();
    expect(await endOf(next, id)).toMatchObject({ status: 'failed', debugId: expect.stringMatching(UUID) });
    expect(await taken()).toEqual([]);
  });
});

describe('a build whose sandbox moves to another node, or whose node is away', () => {
  const away = () => throwing(new TorporError('unreachable', 'The node "a" does not answer.'));

  it('is run again, and the old sandbox is killed when it can be reached (R20)', async () => {
    let runs = 0;
    await open({
      run: async () => {
        runs++;
        return APP;
      },
    });
    world.provider.moving = true;
    world.provider.fail('run', away());
    // The worker tries, the next attempt tries, and then the rounds of the upkeep.
    world.provider.fail('kill', away(), away(), away());
    const id = await begin();
    const job = await world.ended(id);
    expect(job).toMatchObject({ status: 'ready', errorMessage: null });
    expect(runs).toBe(1);
    await expect
      .poll(() => world.provider.live.map((sandbox) => sandbox.id), { timeout: 10_000 })
      .toEqual([job.sandboxId]);
    await expect.poll(() => world.db.query('SELECT * FROM build_leftovers')).toEqual([]);
  });

  it('fails when no attempt gets through (R20)', async () => {
    await open();
    world.provider.moving = true;
    world.provider.fail('write', ...Array.from({ length: 10 }, away));
    const job = await world.ended(await begin());
    expect(job).toMatchObject({ status: 'failed', debugId: expect.stringMatching(UUID) });
    expect(world.provider.named('write')).toHaveLength(world.ctx.settings.attempts);
  });

  it('fails at once by a fault of its own', async () => {
    await open();
    world.provider.moving = true;
    world.provider.command = ({ command }) => (command.includes('npm') ? 1 : 0);
    await world.ended(await begin());
    expect(world.provider.named('create')).toHaveLength(1);
  });

  it('fails at once on a server that is alone', async () => {
    await open();
    world.provider.fail('run', away());
    expect((await world.ended(await begin())).status).toBe('failed');
    expect(world.provider.named('create')).toHaveLength(1);
  });
});

describe('a build whose preview expired', () => {
  it('can be rebuilt from its files as a new version, and stays unchanged (R48)', async () => {
    let runs = 0;
    await open({
      run: async () => {
        runs++;
        return APP;
      },
    });
    const first = await begin();
    await world.ended(first);
    await expect.poll(async () => (await world.row(first)).sandboxPaused).toBe(1);
    world.provider.sandboxes.clear();
    const before = await world.row(first);
    await expect(world.builds.resume(OWNER, first)).rejects.toMatchObject({ errorType: 'sandbox_expired' });
    const { job_id } = await world.builds.rebuild(OWNER, first);
    expect(await world.ended(job_id)).toMatchObject({ status: 'ready', buildVersion: 'build_v0_2' });
    expect(runs).toBe(1);
    expect(await world.builds.files(OWNER, job_id)).toEqual(await world.builds.files(OWNER, first));
    expect(await world.row(first)).toEqual(before);
  });
});

describe('an iteration', () => {
  it('starts from the previous build, and leaves it unchanged', async () => {
    const seen: string[][] = [];
    await open({
      run: async ({ previous }) => {
        seen.push(previous.map(({ path }) => path));
        return previous.length === 0
          ? [...APP, textFile('old.txt', 'old')]
          : [...APP, textFile('new.txt', 'new')];
      },
    });
    const first = await begin();
    const before = await world.ended(first);
    const second = await begin({ previous_job_id: first });
    expect(await world.ended(second)).toMatchObject({ status: 'ready', buildVersion: 'build_v0_2' });
    expect(seen[1]).toEqual(['old.txt', 'package.json', 'server.mjs']);
    const sandbox = world.provider.sandboxes.get((await world.row(second)).sandboxId as never);
    expect([...(sandbox?.files.keys() ?? [])].sort()).toEqual([
      'project/new.txt',
      'project/package.json',
      'project/server.mjs',
    ]);
    expect(world.provider.sandboxes.get(before.sandboxId as never)?.files.has('project/old.txt')).toBe(true);
  });

  it('that fails leaves the previous version usable', async () => {
    await open({
      run: async ({ previous }) => [
        textFile(
          'package.json',
          JSON.stringify({ scripts: { start: 'x', check: previous.length > 0 ? 'bad' : 'ok' } }),
        ),
      ],
    });
    world.provider.command = ({ command }) => (command.endsWith('bad') ? 1 : 0);
    const first = await begin();
    await world.ended(first);
    const second = await world.ended(await begin({ previous_job_id: first }));
    expect(second).toMatchObject({ status: 'failed', errorMessage: expect.stringContaining('needs-review') });
    expect(await world.builds.resume(OWNER, first)).toMatchObject({
      preview_url: (await world.row(first)).previewUrl,
    });
    expect(world.provider.live).toHaveLength(1);
  });

  it('needs a ready build of the same project', async () => {
    await open();
    const first = await begin();
    await world.ended(first);
    await expect(begin({ project_id: 'other', previous_job_id: first })).rejects.toMatchObject({
      code: 'conflict',
    });
  });
});
