/**
 * Kills the real server with SIGKILL at one named point of an operation, starts it again, and checks that
 * every sandbox is where it may be, with all of its files, and that nothing is left without an owner.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdir, readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { FaultPoint } from '@torpor/engine';
import type { CheckpointId, SandboxId, SandboxState } from '@torpor/protocol';
import type { Torpor } from '@torpor/sdk';
import { startTorpor, type TorporProcess } from './torpor-process.ts';

const run = promisify(execFile);
/** A server that has answered and still lives after this long did not pass the point. */
const PATIENCE_MS = 10_000;

/** What brings a sandbox to where the operation begins, and the operation itself. */
interface Trial {
  prepare(torpor: Torpor, id: SandboxId): Promise<CheckpointId | undefined>;
  act(torpor: Torpor, id: SandboxId, checkpoint: CheckpointId | undefined): Promise<unknown>;
  /** Where the sandbox may be after the crash; anything else is a lie or a loss. */
  readonly may: readonly SandboxState[];
}

const nothing = async () => undefined;
const TRIALS: Readonly<Record<string, Trial>> = {
  pause: { prepare: nothing, act: (torpor, id) => torpor.sandboxes.pause(id), may: ['running', 'paused'] },
  resume: {
    prepare: async (torpor, id) => {
      await torpor.sandboxes.pause(id);
      return undefined;
    },
    act: (torpor, id) => torpor.sandboxes.resume(id),
    may: ['running', 'paused'],
  },
  snapshot: { prepare: nothing, act: (torpor, id) => torpor.sandboxes.snapshot(id), may: ['running'] },
  fork: { prepare: nothing, act: (torpor, id) => torpor.sandboxes.fork(id, { count: 2 }), may: ['running'] },
  rollback: {
    prepare: async (torpor, id) => (await torpor.sandboxes.snapshot(id, { name: 'here' })).id,
    act: (torpor, id, checkpoint) => torpor.sandboxes.rollback(id, checkpoint ?? 'ckpt_'),
    may: ['running', 'paused'],
  },
  kill: { prepare: nothing, act: (torpor, id) => torpor.sandboxes.kill(id), may: ['killing', 'killed'] },
};

const WRITE_TREE = `mkdir -p deep/er && for i in $(seq 20); do echo "$i $RANDOM" > deep/er/$i; done &&
  ln -s deep/er/1 link && chmod 640 deep/er/2 && printf '\\0\\1' > 'odd name'`;
const DIGEST = `find . -path ./.cache -prune -o \\( -type f -o -type l \\) -printf '%p %m %l\\n' | sort | sha256sum
  find . -type f -not -path './.cache/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum`;

/** A program that counts in its memory only, and one look at it. */
const COUNTER = `node -e 'let n = 0; require("http").createServer((q, r) => r.end(String(++n))).listen(7070)'`;
const COUNT = `bash -c 'exec 3<>/dev/tcp/127.0.0.1/7070; printf "GET / HTTP/1.0\r\n\r\n" >&3; tail -n1 <&3'`;

export type CrashedRuntime = 'process' | 'gvisor';

export async function crashAt(
  point: FaultPoint,
  dataDir: string,
  runtime: CrashedRuntime = 'process',
): Promise<void> {
  const kind = point.slice(0, point.indexOf('.'));
  if (kind === 'create') return crashInCreate(point, dataDir, runtime);
  const trial = TRIALS[kind];
  if (trial === undefined) throw new Error(`There is no trial for ${point}.`);

  const dying = await startTorpor(dataDir, faultAt(point), runtime);
  const { id } = await dying.torpor.sandboxes.create({ idleSeconds: 86_400 });
  await must(dying.torpor, id, WRITE_TREE);
  const before = await must(dying.torpor, id, DIGEST);
  const counted = runtime === 'gvisor' ? await startCounting(dying.torpor, id) : 0;
  const checkpoint = await trial.prepare(dying.torpor, id);
  await dies(dying, trial.act(dying.torpor, id, checkpoint));

  const healed = await startTorpor(dataDir, {}, runtime);
  try {
    const { state } = await healed.torpor.sandboxes.get(id);
    if (!trial.may.includes(state)) throw new Error(`After ${point} the sandbox is ${state}.`);
    if (kind !== 'kill') {
      const after = await must(healed.torpor, id, DIGEST);
      if (after !== before) throw new Error(`After ${point} the files are others:\n${before}\n${after}`);
      // And it goes on as if nothing had been: through a whole sleep.
      await healed.torpor.sandboxes.pause(id);
      const woken = await must(healed.torpor, id, DIGEST);
      if (woken !== before) throw new Error(`After ${point} and a sleep the files are others.`);
    }
    if (kind !== 'kill' && runtime === 'gvisor') {
      const now = Number(await must(healed.torpor, id, COUNT));
      if (now !== counted + 1)
        throw new Error(`After ${point} the program counts ${now}, not ${counted + 1}.`);
    }
    await leavesNothing(healed.torpor, dataDir, point);
  } finally {
    await healed.kill('SIGTERM');
  }
  await leavesMachineClean(dataDir, point);
}

async function startCounting(torpor: Torpor, id: SandboxId): Promise<number> {
  await torpor.sandboxes.execInBackground(id, COUNTER);
  const until = `until ${COUNT} 2> /dev/null; do sleep 0.1; done`;
  return Number(await must(torpor, id, until));
}

/** A lost reply to create leaks nothing: the repeat under the same key is the same sandbox. */
async function crashInCreate(point: FaultPoint, dataDir: string, runtime: CrashedRuntime): Promise<void> {
  const dying = await startTorpor(dataDir, faultAt(point), runtime);
  const idempotencyKey = `crash-${point}`;
  await dies(dying, dying.torpor.sandboxes.create({}, { idempotencyKey }));
  const healed = await startTorpor(dataDir, {}, runtime);
  try {
    const { id } = await healed.torpor.sandboxes.create({}, { idempotencyKey });
    await must(healed.torpor, id, 'true');
    const all = [];
    for await (const sandbox of healed.torpor.sandboxes.list({ state: ['running', 'creating', 'paused'] })) {
      all.push(sandbox.id);
    }
    if (all.length !== 1) throw new Error(`After ${point} there are ${all.join(', ')}.`);
    await leavesNothing(healed.torpor, dataDir, point);
  } finally {
    await healed.kill('SIGTERM');
  }
  await leavesMachineClean(dataDir, point);
}

function faultAt(point: FaultPoint): Record<string, string> {
  return { TORPOR_FAULTS: '1', TORPOR_FAULT: point };
}

async function dies(server: TorporProcess, request: Promise<unknown>): Promise<void> {
  request.catch(() => {});
  const outcome = await Promise.race([
    server.ended,
    request.then(
      () => 'answered' as const,
      () => server.ended,
    ),
  ]);
  // After the last commit the answer may be on its way when the server dies.
  const signal =
    outcome === 'answered' ? await Promise.race([server.ended, delay(PATIENCE_MS, 'nothing')]) : outcome;
  if (signal !== 'SIGKILL') throw new Error(`The server ended by ${signal}.`);
}

async function must(torpor: Torpor, id: SandboxId, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await torpor.sandboxes.exec(id, command);
  if (exitCode !== 0) throw new Error(`${command} exited with ${exitCode}: ${stderr}`);
  return stdout;
}

/** Every operation has ended; and once everything is killed, no process, directory or checkpoint is left. */
async function leavesNothing(torpor: Torpor, dataDir: string, point: string): Promise<void> {
  for await (const { id, kind, outcome } of torpor.operations.list()) {
    if (outcome === null) throw new Error(`After ${point} the ${kind} ${id} is open.`);
  }
  const kept: CheckpointId[] = [];
  for await (const { id } of torpor.sandboxes.list()) {
    const { items } = await torpor.sandboxes.checkpoints(id);
    kept.push(...items.map((checkpoint) => checkpoint.id));
    await torpor.sandboxes.kill(id);
  }
  for (const id of kept) await torpor.checkpoints.delete(id);
  await torpor.fsck();
  const { stdout } = await run('ps', ['-eo', 'pid,args']);
  const left = stdout.split('\n').filter((line) => line.includes(dataDir) && line.includes('agent'));
  if (left.length > 0) throw new Error(`After ${point} these processes are left:\n${left.join('\n')}`);
  const sealed = await readdir(join(dataDir, 'checkpoints/sealed'));
  if (sealed.length !== 1) throw new Error(`After ${point} the store keeps ${sealed.join(', ')}.`);
  for (const place of ['checkpoints/staging', 'checkpoints/removing']) {
    const stray = await readdir(join(dataDir, place));
    if (stray.length > 0) throw new Error(`After ${point} ${place} holds ${stray.join(', ')}.`);
  }
}

/** When the server has stopped and no sandbox is left, neither is a process, a mount or a namespace. */
async function leavesMachineClean(dataDir: string, point: string): Promise<void> {
  const tag = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex')
    .slice(0, 6);
  const { stdout } = await run('ps', ['-eo', 'pid,args']);
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8').catch(() => '')).split('\n');
  const namespaces = await readdir('/run/netns').catch((): string[] => []);
  const left = [
    ...stdout.split('\n').filter((line) => line.includes(dataDir) || line.includes(`/run/torpor/${tag}/`)),
    ...mounts.filter((line) => line.includes(dataDir) || line.includes(`/run/torpor/${tag}/`)),
    ...namespaces.filter((name) => name.startsWith(`${tag}-`)),
  ];
  if (left.length > 0) throw new Error(`After ${point} this is left on the machine:\n${left.join('\n')}`);
}
