import { databaseKinds, ManualClock } from '@torpor/engine/testing';
import { cleanLine, LineBuffer } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BuildWorld, buildWorld, OWNER } from '../../testing/build-world.ts';
import { submit } from '../jobs/submit.ts';
import { BuildLog } from './build-log.ts';

describe('a line of a build log', () => {
  it.each([
    ['\u001b[32mgreen\u001b[0m and \u001b[1;38;5;200mloud\u001b[m', 'green and loud'],
    ['\u001b]0;a title\u0007text', 'text'],
    ['\u001b]8;;http://x\u001b\\a link\u001b]8;;\u001b\\', 'a link'],
    ['bell\u0007 and \u0008back\ttab', 'bell and back\ttab'],
    ['  kept in front', '  kept in front'],
  ])('loses its terminal codes: %j', (line, expected) => {
    expect(cleanLine(line, [])).toBe(expected);
  });

  it.each([
    'OPENAI_API_KEY=sk-abcdefghijklmnop',
    'using sk-proj-abcdefghijklmnopqrst now',
    '"password": "hunter2hunter2"',
    'DB_PASSWORD: hunter2hunter2',
    'postgres://user:hunter2hunter2@db/x',
    'mongodb+srv://a:hunter2hunter2@c.d.net',
    'redis://:hunter2hunter2@cache:6379/0',
    'key AKIAIOSFODNN7EXAMPLE found',
    'pk_live_hunter2hunter2hunter2',
    'Authorization: Bearer hunter2hunter2hunter2',
    'https://me:hunter2hunter2@git.test/repo',
    'ghp_hunter2hunter2hunter2hunter2',
    'the plain secret our-own-hunter2 here',
    '\u001b[31mapi_key\u001b[0m=\u001b[1mhunter2hunter2',
  ])('loses its secrets: %j (R114)', (line) => {
    const cleaned = cleanLine(line, ['our-own-hunter2']) ?? '';
    expect(cleaned).toContain('[redacted]');
    expect(cleaned).not.toMatch(/hunter2|abcdefghijklmnop|IOSFODNN7/);
  });

  it('is truncated when it is long, and dropped when it is empty', () => {
    expect(cleanLine('x'.repeat(5_000), [])).toHaveLength(2_001);
    expect(cleanLine(' \t \u001b[0m', [])).toBeUndefined();
  });

  it('hides a secret at the point of truncation', () => {
    const line = `${'x'.repeat(1_995)} token=abcdefghijklmnopqrstuvwxyz`;
    expect(cleanLine(line, [])).not.toContain('abcde');
  });
});

describe('pieces of output', () => {
  it('become lines, separately for each channel', () => {
    const lines: string[] = [];
    const buffer = new LineBuffer((channel, line) => lines.push(`${channel}: ${line}`));
    buffer.add('stdout', 'one\ntw');
    buffer.add('stderr', 'oh');
    buffer.add('stdout', 'o\r\nthree');
    buffer.add('stdout', `${'y'.repeat(40_000)}\nfour`);
    buffer.end();
    expect(lines.map((line) => line.slice(0, 20))).toEqual([
      'stdout: one',
      'stdout: two',
      'stdout: threeyyyyyyy',
      'stdout: four',
      'stderr: oh',
    ]);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(17_000);
  });
});

describe.each(databaseKinds)('the log of a build on %s', (kind) => {
  let world: BuildWorld;
  const clock = new ManualClock();
  beforeAll(async () => {
    world = await buildWorld(kind, { working: false, clock, settings: { maxLogLines: 1_000 } });
  });
  afterAll(() => world.dispose());
  const newJob = async () =>
    (await submit(world.ctx, { ...OWNER, projectId: 'p', goal: 'g', runner: 'none' })).id;

  it('is stored in order and read in pages from its end', async () => {
    const id = await newJob();
    const log = new BuildLog(world.ctx, id);
    for (let i = 1; i <= 450; i++) {
      if (i === 200) log.phase = 'deps';
      log.line('torpor', `line ${i}`);
    }
    await log.flush();
    const last = await world.builds.logPage(OWNER, id, { limit: 200 });
    expect(last).toMatchObject({ has_more: true, oldest_id: 251 });
    expect(last.lines.map(({ text }) => text)).toEqual(
      Array.from({ length: 200 }, (_, i) => `line ${i + 251}`),
    );
    expect(last.lines[0]).toMatchObject({ id: 251, source: 'torpor', phase: 'deps' });
    const first = await world.builds.logPage(OWNER, id, { beforeId: 51, limit: 100 });
    expect(first).toMatchObject({ has_more: false, oldest_id: 1 });
    expect(first.lines).toHaveLength(50);
  });

  it('ends at its limit with a notice', async () => {
    const id = await newJob();
    const log = new BuildLog(world.ctx, id);
    for (let i = 1; i <= 1_200; i++) log.line('stdout', `line ${i}`);
    await log.flush();
    const { lines } = await world.builds.logPage(OWNER, id, { limit: 500 });
    expect(lines.at(-1)).toMatchObject({ id: 1_000, text: 'The log is full; further lines are dropped.' });
  });

  it('does not fail the build when it cannot be written', async () => {
    const id = await newJob();
    const broken = {
      ...world.db,
      transaction: () => Promise.reject(new TorporError('unreachable', 'The database is away.')),
    };
    const log = new BuildLog({ ...world.ctx, db: broken as never }, id);
    log.line('torpor', 'lost');
    await log.flush();
    expect(world.reported.at(-1)?.what).toContain('log was not written');
  });
});
