/**
 * Two clients send conflicting requests for one sandbox at the same time. Each must get an answer that the documentation
 * allows. Afterwards all clients must see the same state, and the sandbox must have all its data.
 */
import assert from 'node:assert/strict';
import { Sandbox, SandboxNotFoundError } from 'e2b';
import type { Options } from './complaints.ts';

const LONG = 3_600_000;

export interface Outcomes {
  readonly rounds: number;
  /** How often each pair of answers was given. */
  readonly answers: Record<string, number>;
}

type Answer = 'true' | 'false' | 'done' | 'not found';

async function answerOf(work: Promise<unknown>): Promise<Answer> {
  try {
    const result = await work;
    return result === true ? 'true' : result === false ? 'false' : 'done';
  } catch (thrown) {
    if (thrown instanceof SandboxNotFoundError) return 'not found';
    throw thrown;
  }
}

export async function oppositeWishes(options: Options, rounds: number): Promise<Outcomes> {
  const answers: Record<string, number> = {};
  const note = (round: string) => {
    answers[round] = (answers[round] ?? 0) + 1;
  };
  let sandbox = await born(options);
  for (let round = 0; round < rounds; round++) {
    const mark = `round ${round}`;
    await sandbox.files.write('mark', mark);
    await pauseAndConnect(sandbox, options, note);
    await snapshotAndPause(sandbox, options, note);
    assert.equal(await sandbox.files.read('mark'), mark);
    await killAndFork(sandbox, options, mark, note);
    sandbox = await born(options);
  }
  await sandbox.kill();
  return { rounds, answers };
}

const born = (options: Options) => Sandbox.create({ ...options, timeoutMs: LONG });

async function pauseAndConnect(sandbox: Sandbox, options: Options, note: (round: string) => void) {
  const { sandboxId } = sandbox;
  const answers = await Promise.all([
    answerOf(Sandbox.pause(sandboxId, options)),
    answerOf(Sandbox.connect(sandboxId, options)),
  ]);
  note(`pause ${answers[0]}, connect ${answers[1]}`);
  // The sandbox ran before, so the pause had an effect. Depending on the order, the sandbox is paused or running.
  assert.deepEqual(answers, ['true', 'done']);
  const { state } = await Sandbox.getInfo(sandboxId, options);
  assert.equal(await sandbox.isRunning(), state === 'running');
  await Sandbox.connect(sandboxId, options);
}

async function snapshotAndPause(sandbox: Sandbox, options: Options, note: (round: string) => void) {
  const { sandboxId } = sandbox;
  const taken: string[] = [];
  const snapshot = async () => {
    taken.push((await Sandbox.createSnapshot(sandboxId, options)).snapshotId);
  };
  const answers = await Promise.all([answerOf(snapshot()), answerOf(Sandbox.pause(sandboxId, options))]);
  note(`snapshot ${answers[0]}, pause ${answers[1]}`);
  assert.deepEqual(answers, ['done', 'true']);
  assert.equal((await Sandbox.getInfo(sandboxId, options)).state, 'paused');
  await Sandbox.connect(sandboxId, options);
  for (const id of taken) assert.equal(await Sandbox.deleteSnapshot(id, options), true);
}

async function killAndFork(sandbox: Sandbox, options: Options, mark: string, note: (round: string) => void) {
  const { sandboxId } = sandbox;
  const children: Sandbox[] = [];
  const fork = async () => {
    for (const child of await Sandbox.fork(sandboxId, options))
      if (child instanceof Sandbox) children.push(child);
  };
  const answers = await Promise.all([answerOf(fork()), answerOf(Sandbox.kill(sandboxId, options))]);
  note(`fork ${answers[0]} with ${children.length}, kill ${answers[1]}`);
  assert.equal(answers[1], 'true');
  await assert.rejects(Sandbox.getInfo(sandboxId, options), SandboxNotFoundError);
  for (const child of children) {
    assert.equal(await child.files.read('mark'), mark);
    assert.equal(await child.kill(), true);
  }
}
