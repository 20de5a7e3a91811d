import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeId } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { TurnRecords } from './turn-records.ts';
import { Turns } from './turns.ts';

const shell = (script: string) => ({ cmd: '/bin/sh', args: ['-c', script], envs: {} });
const newTurn = () => makeId('turn', randomBytes);

describe('a turn', () => {
  let agent: RunningAgent;
  /** File with everything that the program has read. */
  let log: string;
  beforeAll(async () => {
    agent = await runAgent();
  });
  afterAll(() => agent.stop());
  beforeEach(() => {
    log = join(agent.directory, newTurn());
  });

  const outputOf = async (tag: string) => {
    let text = '';
    const process = { selector: { case: 'tag' as const, value: tag } };
    for await (const { event } of agent.client.process.connect({ process })) {
      const data = event?.event.case === 'data' ? event.event.value.output.value : undefined;
      if (data !== undefined) text += Buffer.from(data).toString();
    }
    return text;
  };

  it('is delivered once to a program of its own, for repeated and concurrent requests', async () => {
    const order = { id: newTurn(), keep: null, process: shell(`tee -a ${log}`), input: 'hello\n' };
    const first = await Promise.all([1, 2, 3].map(() => agent.client.deliverTurn(order)));
    const later = await agent.client.deliverTurn(order);
    expect([...first, later]).toEqual(Array(4).fill({ is: 'written', tag: order.id, offset: 0 }));
    expect(await outputOf(order.id)).toBe('hello\n');
    expect(await readFile(log, 'utf8')).toBe('hello\n');
  });

  it('is delivered to a kept program, with the offset where its answer begins', async () => {
    const process = shell(`tee -a ${log}`);
    const order = (input: string) => ({ id: newTurn(), keep: 'thread', process, input });
    const one = await agent.client.deliverTurn(order('one\n'));
    await expect.poll(() => readFile(log, 'utf8').catch(() => '')).toBe('one\n');
    await expect.poll(async () => (await agent.client.deliverTurn(order('+\n'))).is === 'written').toBe(true);
    if (one.is !== 'written') throw new Error('The turn was not written.');
    await expect.poll(() => readFile(log, 'utf8')).toBe('one\n+\n');
    const two = await agent.client.deliverTurn(order('two\n'));
    expect(two).toMatchObject({ is: 'written', tag: one.tag });
    expect(two.is === 'written' && two.offset).toBeGreaterThanOrEqual(4);
  });

  it('can be delivered again when its program could not be started', async () => {
    const order = { id: newTurn(), keep: null, input: 'x' };
    const broken = { ...order, process: { cmd: '/nonexistent', args: [], envs: {} } };
    await expect(agent.client.deliverTurn(broken)).rejects.toMatchObject({ code: 'invalid_request' });
    expect(await agent.client.deliverTurn({ ...order, process: shell('cat') })).toMatchObject({
      is: 'written',
    });
  });

  it('is refused when its id is malformed', async () => {
    const order = { id: '../../etc/passwd', keep: null, process: shell('cat'), input: 'x' };
    await expect(agent.client.deliverTurn(order)).rejects.toMatchObject({ code: 'invalid_request' });
  });
});

describe('the record of a turn', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-turns-'));
  });
  afterEach(() => rm(directory, { recursive: true }));

  const order = { id: newTurn(), keep: null, process: shell('cat'), input: 'x' };

  it('exists before the program starts, and makes an interrupted turn unknown forever', async () => {
    const records = new TurnRecords(join(directory, 'turns'));
    let recorded: string[] = [];
    const dying = new Turns({
      records,
      launch: async () => {
        recorded = await readdir(join(directory, 'turns'));
        return new Promise(() => {});
      },
    });
    void dying.deliver(order);
    await expect.poll(() => recorded).toEqual([`${order.id}.json`]);
    const launch = () => Promise.reject(new Error('The program must not be started again.'));
    const later = new Turns({ records: new TurnRecords(join(directory, 'turns')), launch });
    for (let times = 0; times < 2; times++)
      expect(await later.deliver(order)).toMatchObject({ is: 'unknown' });
  });

  it('counts even when its content is damaged', async () => {
    const records = new TurnRecords(directory);
    await writeFile(join(directory, `${order.id}.json`), '{"is":');
    expect(await records.find(order.id)).toEqual({ is: 'recorded' });
  });
});
