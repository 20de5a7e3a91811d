/**
 * Measures pause and resume on gVisor, side by side in one run: `runsc` alone (checkpoint, restore) as the lower bound,
 * Torpor's API on top, and a cold start of the same server.
 *
 *   npm run bench:lifecycle            as root; some minutes
 *   npm run bench:lifecycle -- quick   fewer rounds, without the large ones
 *   npm run bench:lifecycle -- disk    one part: small, large, create, disk or crowd
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp } from 'node:fs/promises';
import { type RequestOptions, request } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { SandboxId, SandboxView } from '@torpor/protocol';
import type { Torpor } from '@torpor/sdk';
import { makeGuestWorld } from '../packages/runtime-gvisor/src/guest/testing/guest-world.ts';
import { writeTinyBundle } from '../packages/runtime-gvisor/src/host-checks/tiny-bundle.ts';
import { findRunsc } from '../packages/runtime-gvisor/src/runsc/find-runsc.ts';
import { Runsc } from '../packages/runtime-gvisor/src/runsc/runsc.ts';
import type { Container } from '../packages/runtime-gvisor/src/runsc/runsc-container.ts';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { row, type Times, time } from './measure.ts';

const run = promisify(execFile);
const quick = process.argv.includes('quick');
const ROUNDS = quick ? 5 : 15;
const PARTS = ['small', 'large', 'create', 'disk', 'crowd'];
const named = PARTS.filter((part) => process.argv.includes(part));
const isAsked = (part: string) =>
  named.length > 0 ? named.includes(part) : !(quick && ['large', 'disk'].includes(part));
const unhurried = new AbortController().signal;

/** A small server that holds this many megabytes of random bytes. */
const server = (megabytes: number) =>
  `globalThis.held = require('node:crypto').randomBytes(${megabytes} * 1048576);` +
  'let n = 0; require("node:http").createServer((q, r) => r.end(String(++n))).listen(8080, () => console.log("ready"))';

function service(megabytes: number) {
  return {
    name: 'web',
    command: `node -e '${server(megabytes).replaceAll("'", `'"'"'`)}'`,
    port: 8080,
    ready: { path: '/', timeoutSeconds: 60 },
  };
}

interface Line {
  readonly what: string;
  readonly times: Times;
}

/** runsc alone, with the same server and nothing else: no agent, no network, no layers, no durability. */
async function bareFloor(dir: string, megabytes: number): Promise<Contender> {
  const configured = process.env['TORPOR_RUNSC'] || undefined;
  const { found } = await findRunsc({ dataDir: dir, runsc: configured }, unhurried);
  if (found === null) throw new Error('There is no usable runsc.');
  const runsc = new Runsc({
    program: found.program,
    root: join(dir, 'root'),
    network: 'none',
    ignoreCgroups: true,
  });
  let n = 0;
  const container = async () => {
    // Fixed width, because runsc accepts a prefix for a name.
    const id = `floor-${megabytes}-${String(n++).padStart(3, '0')}`;
    const bundle = join(dir, id);
    await mkdir(bundle);
    const node = dirname(process.execPath);
    await writeTinyBundle(bundle, {
      args: [process.execPath, '-e', server(megabytes)],
      binds: { [node]: { source: node, writable: false } },
    });
    return { id, bundle, logs: join(bundle, 'logs'), netns: null };
  };
  const first = await container();
  await runsc.run(first, unhurried);
  await new Promise((resolve) => setTimeout(resolve, 2_000 + megabytes * 10));
  const images: string[] = [];
  const checkpoint = await time(ROUNDS, async (i) => {
    const image = join(dir, `image-${megabytes}-${i}`);
    images.push(image);
    await runsc.freeze(first, unhurried);
    await runsc.checkpoint(first, image, unhurried);
    await runsc.thaw(first, unhurried);
  });
  await runsc.killProcesses(first, unhurried);
  const restored: Container[] = [];
  const restore: number[] = [];
  return {
    async round() {
      const one = await container();
      restored.push(one);
      await rest();
      const began = performance.now();
      await runsc.restore(one, images[0] ?? '', unhurried);
      restore.push(performance.now() - began);
      await runsc.killProcesses(one, unhurried);
    },
    lines: () => [
      { what: 'runsc pause, checkpoint, resume: the server alone', times: checkpoint },
      { what: 'runsc restore: the server alone', times: of(restore) },
    ],
    end: async () => {
      for (const one of [first, ...restored]) await runsc.delete(one, unhurried);
    },
  };
}

/**
 * Contenders are measured in turns, so that a slow minute of the host affects all of them. Each rests before its
 * time is measured, with everything prepared: a processor that was busy until just now is quicker.
 */
interface Contender {
  round(): Promise<void>;
  lines(): Line[];
  end(): Promise<void>;
}

async function inTurns(contenders: readonly Contender[]): Promise<void> {
  for (let i = 0; i < ROUNDS; i++) for (const contender of contenders) await contender.round();
}

/** runsc alone, with everything that a sandbox consists of: agent, server, system directories, layers, a network. */
async function wholeFloor(megabytes: number): Promise<Contender> {
  const world = await makeGuestWorld();
  const first = await world.boot();
  await first.sh(`${service(megabytes).command} > /dev/null 2>&1 & sleep ${2 + megabytes / 100}`);
  const image = await first.sleep();
  const until = (host: string) => answer({ host, port: 8080, agent: false });
  const [restore, firstByte]: [number[], number[]] = [[], []];
  return {
    async round() {
      const woken = await world.wake(image, { rest, until });
      restore.push(woken.startMs);
      firstByte.push(woken.readyMs);
      await woken.stop();
    },
    lines: () => [
      { what: 'runsc restore to first HTTP byte: the whole sandbox', times: of(firstByte) },
      { what: 'runsc restore: the whole sandbox', times: of(restore) },
    ],
    end: () => world.dispose(),
  };
}

/** Long enough for a container to be created in advance. */
const REST_MS = 2_000;

function rest(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, REST_MS));
}

/** Resumes and pauses a sandbox in each round; it stays paused long enough for a container to be created in advance. */
async function cycles({ sandboxes }: Torpor, megabytes: number, how: string): Promise<Contender> {
  const { id } = await sandboxes.create({ services: [service(megabytes)], idleSeconds: 86_400 });
  await sandboxes.pause(id);
  const [pause, resume, firstByte]: [number[], number[], number[]] = [[], [], []];
  return {
    async round() {
      await rest();
      const began = performance.now();
      const { sandbox } = await sandboxes.resume(id);
      resume.push(performance.now() - began);
      await get(sandbox);
      firstByte.push(performance.now() - began);
      pause.push((await time(1, () => sandboxes.pause(id))).p50);
    },
    lines: () => [
      { what: `pause, ${how}`, times: of(pause) },
      { what: `resume, ${how}`, times: of(resume) },
      { what: `resume to first HTTP byte, ${how}`, times: of(firstByte) },
    ],
    end: async () => void (await sandboxes.kill(id)),
  };
}

async function creates([usual, plain]: readonly [Torpor, Torpor]): Promise<void> {
  console.log('\nan empty sandbox');
  console.log(row(['', 'p50 ms', 'p95 ms']));
  for (const [how, { sandboxes }] of [
    ['pre-created container', usual],
    ['no pre-created container', plain],
  ] as const) {
    const times: number[] = [];
    for (let i = 0; i < ROUNDS; i++) {
      const began = performance.now();
      const { id } = await sandboxes.create();
      times.push(performance.now() - began);
      await sandboxes.kill(id);
      await rest();
    }
    const { p50, p95 } = of(times);
    console.log(row([`create, ${how}`, p50, p95]));
  }
}

async function api({ sandboxes }: Torpor, megabytes: number): Promise<Line[]> {
  const cold = await time(Math.min(ROUNDS, 5), async () => {
    const { id } = await sandboxes.create({ services: [service(megabytes)] });
    await sandboxes.kill(id);
  });
  const { id } = await sandboxes.create({ services: [service(megabytes)], idleSeconds: 86_400 });
  const snapshot = await time(Math.min(ROUNDS, 7), () => sandboxes.snapshot(id));
  const fork = await time(Math.min(ROUNDS, 7), async () => {
    const { items } = await sandboxes.fork(id);
    for (const item of items) if ('sandbox' in item) void sandboxes.kill(item.sandbox.id);
  });
  await sandboxes.kill(id);
  return [
    { what: 'create with a cold start of it', times: cold },
    { what: 'snapshot (the whole blink)', times: snapshot },
    { what: 'fork', times: fork },
  ];
}

/** Sends a request through the gateway, to the loopback address: Node does not resolve names below localhost. */
async function get(sandbox: SandboxView): Promise<void> {
  const url = sandbox.urls?.['8080'];
  if (url === undefined) throw new Error('The sandbox names no address for its port.');
  const { host, port } = new URL(url);
  await answer({ host: '127.0.0.1', port, headers: { host }, agent: false });
}

function answer(options: RequestOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    request(options, (response) => response.resume().on('end', resolve))
      .on('error', reject)
      .end();
  });
}

function of(times: readonly number[]): Times {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { count: sorted.length, perSecond: 0, p50: at(0.5), p95: at(0.95) };
}

function show(title: string, lines: readonly Line[], [bare, whole]: readonly [number, number]): void {
  console.log(`\n${title}`);
  console.log(row(['', 'p50 ms', 'p95 ms', '× alone', '× whole']));
  for (const { what, times } of lines)
    console.log(row([what, times.p50, times.p95, times.p50 / bare, times.p50 / whole]));
}

/** Compares pause and resume of a sandbox with 1 GiB in 10,000 files and of an empty one, in turns. */
async function disk({ sandboxes }: Torpor): Promise<void> {
  const make = async () => ({
    id: (await sandboxes.create({ idleSeconds: 86_400 })).id,
    pause: [] as number[],
    resume: [] as number[],
  });
  const [empty, full] = [await make(), await make()];
  await sandboxes.exec(full.id, {
    command:
      'mkdir data; cd data; for d in $(seq 100); do mkdir $d; head -c 10737418 /dev/urandom | split -b 107374 - $d/f; done; sync',
    timeoutSeconds: 600,
  });
  const rounds = Math.min(ROUNDS, 7);
  for (let i = -1; i < rounds; i++) {
    for (const { id, pause, resume } of [empty, full]) {
      await sandboxes.exec(id, `echo ${i} > changed`);
      const [down, up] = [
        await time(1, () => sandboxes.pause(id)),
        await time(1, () => sandboxes.resume(id)),
      ];
      // The first round syncs all files and is not counted.
      if (i < 0) continue;
      pause.push(down.p50);
      resume.push(up.p50);
    }
  }
  console.log('\n1 GiB in 10,000 files against nothing');
  console.log(row(['', 'empty p50', 'full p50', 'ratio']));
  for (const what of ['pause', 'resume'] as const) {
    const [small, large] = [of(empty[what]).p50, of(full[what]).p50];
    console.log(row([what, small, large, large / small]));
  }
  for (const { id } of [empty, full]) await sandboxes.kill(id);
}

/** Pauses many sandboxes and resumes some at the same time: none may fail. Prints the disk space of each. */
async function crowd({ sandboxes, checkpoints }: Torpor, asleep: number, atOnce: number): Promise<void> {
  const ids: SandboxId[] = [];
  for (let i = 0; i < asleep; i++) ids.push((await sandboxes.create({ services: [service(0)] })).id);
  let bytes = 0;
  for (const id of ids) {
    const { checkpoint } = await sandboxes.pause(id);
    bytes += (await checkpoints.get(checkpoint.id)).bytes ?? 0;
  }
  console.log(`\n${asleep} asleep: ${(bytes / asleep / 1e6).toFixed(1)} MB each`);
  const began = performance.now();
  await Promise.all(ids.slice(0, atOnce).map((id) => sandboxes.resume(id)));
  console.log(`${atOnce} resumed at once: all, in ${Math.round(performance.now() - began)} ms`);
  for (const id of ids) await sandboxes.kill(id);
}

const dir = await mkdtemp(join(tmpdir(), 'torpor-bench-'));
const dataDirs = [await makeDataDir(), await makeDataDir()] as const;
const start = (path: string, ahead: string) =>
  startTorpor(path, { TORPOR_LOG_LEVEL: 'error', TORPOR_AHEAD: ahead }, 'gvisor');
const [usual, plain] = [await start(dataDirs[0].path, '4'), await start(dataDirs[1].path, '0')];
try {
  const { torpor } = usual;
  for (const [part, megabytes] of [
    ['small', 0],
    ['large', 500],
  ] as const) {
    if (!isAsked(part)) continue;
    const bare = await bareFloor(dir, megabytes);
    const whole = await wholeFloor(megabytes);
    const contenders = [
      bare,
      whole,
      await cycles(torpor, megabytes, 'pre-created container'),
      await cycles(plain.torpor, megabytes, 'no pre-created container'),
    ];
    await inTurns(contenders);
    for (const contender of contenders) await contender.end();
    const others = await api(torpor, megabytes);
    const title = megabytes === 0 ? 'a small server' : `a server with ${megabytes} MB resident`;
    const unit = (contender: Contender) => contender.lines().at(-1)?.times.p50 ?? 1;
    show(
      title,
      [...contenders.flatMap((contender) => contender.lines()), ...others],
      [unit(bare), unit(whole)],
    );
  }
  if (isAsked('create')) await creates([usual.torpor, plain.torpor]);
  if (isAsked('disk')) await disk(torpor);
  if (isAsked('crowd')) await crowd(torpor, quick ? 4 : 50, quick ? 4 : 20);
} catch (thrown) {
  // Printed here, because an error of the clean-up would replace it.
  console.error(thrown);
  process.exitCode = 1;
} finally {
  for (const server of [usual, plain]) await server.end();
  for (const dataDir of dataDirs) await dataDir.remove();
  await run('rm', ['-rf', dir]);
}
