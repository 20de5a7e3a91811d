/**
 * Kills the real server with SIGKILL at one fault point of an operation, starts it again, and checks that
 * every sandbox is in an allowed state with all its files, and that nothing is left without an owner.
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
/** A server that has answered and still runs after this long did not reach the fault point. */
const DEATH_TIMEOUT_MS = 10_000;

/** Prepares a sandbox for an operation, and runs the operation. */
interface Trial {
  prepare(torpor: Torpor, id: SandboxId): Promise<CheckpointId | undefined>;
  act(torpor: Torpor, id: SandboxId, checkpoint: CheckpointId | undefined): Promise<unknown>;
  /** The states in which the sandbox may be after the crash. */
  readonly allowed: readonly SandboxState[];
}

const nothing = async () => undefined;
const TRIALS: Readonly<Record<string, Trial>> = {
  pause: {
    prepare: nothing,
    act: (torpor, id) => torpor.sandboxes.pause(id),
    allowed: ['running', 'paused'],
  },
  resume: {
    prepare: async (torpor, id) => {
      await torpor.sandboxes.pause(id);
      return undefined;
    },
    act: (torpor, id) => torpor.sandboxes.resume(id),
    allowed: ['running', 'paused'],
  },
  snapshot: { prepare: nothing, act: (torpor, id) => torpor.sandboxes.snapshot(id), allowed: ['running'] },
  fork: {
    prepare: nothing,
    act: (torpor, id) => torpor.sandboxes.fork(id, { count: 2 }),
    allowed: ['running'],
  },
  rollback: {
    prepare: async (torpor, id) => (await torpor.sandboxes.snapshot(id, { name: 'here' })).id,
    act: (torpor, id, checkpoint) => torpor.sandboxes.rollback(id, checkpoint ?? 'ckpt_'),
    allowed: ['running', 'paused'],
  },
  /** The points of the runtime are passed when a sandbox is frozen and kept in memory, and when it goes on. */
  runtime: {
    prepare: nothing,
    act: async (torpor, id) => {
      await torpor.sandboxes.pause(id);
      await torpor.sandboxes.resume(id);
    },
    allowed: ['running', 'paused'],
  },
  kill: { prepare: nothing, act: (torpor, id) => torpor.sandboxes.kill(id), allowed: ['killing', 'killed'] },
};

const WRITE_TREE = `mkdir -p deep/er && for i in $(seq 20); do echo "$i $RANDOM" > deep/er/$i; done &&
  ln -s deep/er/1 link && chmod 640 deep/er/2 && printf '\\0\\1' > 'odd name'`;
const DIGEST = `find . -path ./.cache -prune -o \\( -type f -o -type l \\) -printf '%p %m %l\\n' | sort | sha256sum
  find . -type f -not -path './.cache/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum`;

/** A program that counts in memory only, and a command that reads its count. */
const COUNTER = `node -e 'let n = 0; require("http").createServer((q, r) => r.end(String(++n))).listen(7070)'`;
const COUNT = `bash -c 'exec 3<>/dev/tcp/127.0.0.1/7070; printf "GET / HTTP/1.0\r\n\r\n" >&3; tail -n1 <&3'`;

export type CrashedRuntime = 'process' | 'gvisor';

/** The fault points of the gVisor runtime itself. */
export const RUNTIME_POINTS = [
  'runtime.freezing',
  'runtime.kept',
  'runtime.adopted',
  'runtime.continued',
] as const;
export type CrashPoint = FaultPoint | (typeof RUNTIME_POINTS)[number];

/** `env` is for the server that is killed, and for the next one. */
export async function crashAt(
  point: CrashPoint,
  dataDir: string,
  runtime: CrashedRuntime = 'process',
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const kind = point.slice(0, point.indexOf('.'));
  if (kind === 'create') return crashInCreate(point, dataDir, runtime, env);
  const trial = TRIALS[kind];
  if (trial === undefined) throw new Error(`There is no trial for the fault point ${point}.`);

  const crashing = await startTorpor(dataDir, { ...env, ...faultAt(point) }, runtime);
  const { id } = await crashing.torpor.sandboxes.create({ idleSeconds: 86_400 });
  await execOk(crashing.torpor, id, WRITE_TREE);
  const before = await execOk(crashing.torpor, id, DIGEST);
  const counted = runtime === 'gvisor' ? await startCounting(crashing.torpor, id) : 0;
  const checkpoint = await trial.prepare(crashing.torpor, id);
  await expectDeath(crashing, trial.act(crashing.torpor, id, checkpoint));

  const restarted = await startTorpor(dataDir, env, runtime);
  try {
    const { state } = await restarted.torpor.sandboxes.get(id);
    if (!trial.allowed.includes(state)) throw new Error(`After ${point} the sandbox is ${state}.`);
    if (kind !== 'kill') {
      const after = await execOk(restarted.torpor, id, DIGEST);
      if (after !== before) throw new Error(`After ${point} the files have changed:\n${before}\n${after}`);
      // The sandbox can be paused and resumed as usual.
      await restarted.torpor.sandboxes.pause(id);
      const woken = await execOk(restarted.torpor, id, DIGEST);
      if (woken !== before) throw new Error(`After ${point} and a pause the files have changed.`);
    }
    if (kind !== 'kill' && runtime === 'gvisor') {
      const now = Number(await execOk(restarted.torpor, id, COUNT));
      if (now !== counted + 1)
        throw new Error(`After ${point} the program counts ${now}, not ${counted + 1}.`);
    }
    await expectNothingLeft(restarted.torpor, dataDir, point);
  } finally {
    await restarted.kill('SIGTERM');
  }
  await expectCleanHost(dataDir, point);
}

async function startCounting(torpor: Torpor, id: SandboxId): Promise<number> {
  await torpor.sandboxes.execInBackground(id, COUNTER);
  const until = `until ${COUNT} 2> /dev/null; do sleep 0.1; done`;
  return Number(await execOk(torpor, id, until));
}

/** When the answer to a create is lost, a repeat with the same idempotency key returns the same sandbox. */
async function crashInCreate(
  point: CrashPoint,
  dataDir: string,
  runtime: CrashedRuntime,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const crashing = await startTorpor(dataDir, { ...env, ...faultAt(point) }, runtime);
  const idempotencyKey = `crash-${point}`;
  await expectDeath(crashing, crashing.torpor.sandboxes.create({}, { idempotencyKey }));
  const restarted = await startTorpor(dataDir, env, runtime);
  try {
    const { id } = await restarted.torpor.sandboxes.create({}, { idempotencyKey });
    await execOk(restarted.torpor, id, 'true');
    const all = [];
    for await (const sandbox of restarted.torpor.sandboxes.list({
      state: ['running', 'creating', 'paused'],
    })) {
      all.push(sandbox.id);
    }
    if (all.length !== 1) throw new Error(`After ${point} there are the sandboxes ${all.join(', ')}.`);
    await expectNothingLeft(restarted.torpor, dataDir, point);
  } finally {
    await restarted.kill('SIGTERM');
  }
  await expectCleanHost(dataDir, point);
}

function faultAt(point: CrashPoint): Record<string, string> {
  return { TORPOR_FAULTS: '1', TORPOR_FAULT: point };
}

async function expectDeath(server: TorporProcess, request: Promise<unknown>): Promise<void> {
  request.catch(() => {});
  const outcome = await Promise.race([
    server.ended,
    request.then(
      () => 'answered' as const,
      () => server.ended,
    ),
  ]);
  // After the last commit the answer may arrive before the server dies.
  const signal =
    outcome === 'answered' ? await Promise.race([server.ended, delay(DEATH_TIMEOUT_MS, 'nothing')]) : outcome;
  if (signal !== 'SIGKILL') throw new Error(`The server ended by ${signal}.`);
}

async function execOk(torpor: Torpor, id: SandboxId, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await torpor.sandboxes.exec(id, command);
  if (exitCode !== 0) throw new Error(`${command} exited with ${exitCode}: ${stderr}`);
  return stdout;
}

/** Expects that every operation has ended, and that no process, directory or checkpoint is left once all is killed. */
async function expectNothingLeft(torpor: Torpor, dataDir: string, point: string): Promise<void> {
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

/** Expects that no process, mount or namespace is left after the server has stopped without sandboxes. */
async function expectCleanHost(dataDir: string, point: string): Promise<void> {
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
  if (left.length > 0) throw new Error(`After ${point} this is left on the host:\n${left.join('\n')}`);
}
