/**
 * The process behind `guard.ts`. It holds a deadline, and ends the server and all its sandboxes when the deadline passes.
 *
 * The server moves the deadline by lines on stdin. A server that is stopped, hangs or has lost its database sends no more lines.
 * A server that was killed leaves this process behind, which goes on until nothing is left to end or the deadline has come.
 *
 * The deadline is a time of CLOCK_BOOTTIME. Timers of Node do not count while the machine sleeps, so the clock is read again
 * and again.
 *
 * The server is ended first, and every process that it has started: a server that is continued after the deadline must not
 * start anything any more.
 *
 * Plain JavaScript without imports of ours, to be small, and to start when nothing else does.
 */
import { openSync, readdirSync, readFileSync, readSync, writeFileSync, writeSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { constants, setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/**
 * @typedef {import('./guard-targets.ts').GuardTargets} GuardTargets
 * @typedef {{ pid: number, parent: number, session: number, startedAt: string, isDead: boolean }} Process
 */

/** How often the clock is read. */
const POLL_MS = 100;
/** How often a guard whose server is gone looks whether anything is left to guard. */
const IDLE_POLLS = 10;
/** A process may have been started just before its parent was killed, so the guard looks again until nothing is found. */
const AGAIN_MS = 50;
const QUIET_LOOKS = 3;
/** While a process cannot be ended (it waits in the kernel), the guard says so this often. */
const SAY_EVERY_LOOKS = 200;

/** @type {{ server: { pid: number, startedAt: string }, targets: GuardTargets }} */
const { server, targets } = JSON.parse(process.argv[2] ?? '');
const uptime = openSync('/proc/uptime', 'r');
const uptimeBuffer = Buffer.alloc(64);

/** @type {number | undefined} */
let deadline;
let isServerGone = false;
let isEnding = false;
let polls = 0;

// The server's terminal sends these to all its processes. The sandboxes go on, so the guard must go on.
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGPIPE']))
  process.on(signal, () => {});
process.stdout.on('error', () => {});
protectFromMemoryPressure();
runBeforeOthers();

let rest = '';
process.stdin.setEncoding('latin1');
process.stdin.on('data', (text) => {
  const lines = `${rest}${text}`.split('\n');
  rest = lines.pop() ?? '';
  for (const line of lines) {
    // Once the end has begun, no later deadline counts.
    if (isEnding) continue;
    deadline = Number(line);
    process.stdout.write(`${line}\n`);
  }
});
process.stdin.on('error', () => {});
process.stdin.on('close', () => {
  isServerGone = true;
});
process.stdout.write('ready\n');
setInterval(poll, POLL_MS);

function poll() {
  if (isEnding) return;
  if (deadline !== undefined && bootTime() >= deadline) {
    isEnding = true;
    endEverything().then(
      () => process.exit(0),
      (error) => {
        say('the guard failed', { error: String(error) });
        process.exit(1);
      },
    );
    return;
  }
  if (!isServerGone || ++polls % IDLE_POLLS !== 0) return;
  if (deadline === undefined) process.exit(0);
  findTargets(readProcesses()).then((left) => {
    if (left.length === 0 && !isEnding && !isAlive(server)) process.exit(0);
  });
}

async function endEverything() {
  const began = bootTime();
  const ended = new Set(endServer());
  for (let quiet = 0, looks = 0; quiet < QUIET_LOOKS; looks++) {
    endCgroups();
    const found = await findTargets(readProcesses());
    for (const { pid } of found) {
      ended.add(pid);
      kill(pid, 'SIGKILL');
    }
    quiet = found.length === 0 ? quiet + 1 : 0;
    if (looks % SAY_EVERY_LOOKS === SAY_EVERY_LOOKS - 1) {
      say('processes of sandboxes do not end', { pids: found.slice(0, 20).map(({ pid }) => pid) });
    }
    await delay(AGAIN_MS);
  }
  const ms = Math.round(bootTime() - began);
  say('the lease of this node has run out: its sandboxes and its server were ended', {
    processes: ended.size,
    ms,
  });
}

/** Stopped first, so that it starts nothing while its children are looked for. The guard is one of them. */
function endServer() {
  if (!isAlive(server)) return [];
  kill(server.pid, 'SIGSTOP');
  const all = readProcesses();
  const own = new Set([server.pid]);
  for (let before = 0; before < own.size; ) {
    before = own.size;
    for (const { pid, parent } of all) if (own.has(parent) && pid !== process.pid) own.add(pid);
  }
  for (const pid of own) kill(pid, 'SIGKILL');
  return own;
}

/** At once, without looking for their processes, where the kernel can. */
function endCgroups() {
  for (const directory of targets.cgroups) {
    try {
      writeFileSync(join(directory, 'cgroup.kill'), '1', { flag: 'r+' });
    } catch {
      // Version 1 has no such file: `findTargets` lists the members.
    }
  }
}

/**
 * @param {readonly Process[]} all
 * @returns {Promise<Process[]>}
 */
async function findTargets(all) {
  const alive = all.filter(({ pid, isDead, session }) => !isDead && session !== 0 && pid !== process.pid);
  const pids = new Set(targets.cgroups.flatMap(membersBelow));
  const records = targets.marked.map(readMarks);
  for (const { agents } of records) for (const pid of agents) pids.add(pid);
  // Reading the arguments of a process waits while the process changes its memory, so many are read at once.
  await Promise.all(
    alive.map(async ({ pid }) => {
      if (pids.has(pid)) return;
      if (await isCommand(pid)) pids.add(pid);
      else for (const record of records) if (await isMarked(pid, record)) pids.add(pid);
    }),
  );
  if (records.length > 0) addRelatives(pids, alive);
  return alive.filter(({ pid }) => pids.has(pid));
}

/** @param {string} directory @returns {number[]} */
function membersBelow(directory) {
  const own = text(join(directory, 'cgroup.procs')).split('\n').filter(Boolean).map(Number);
  return [...own, ...entries(directory, true).flatMap((name) => membersBelow(join(directory, name)))];
}

/** @param {number} pid */
async function isCommand(pid) {
  if (targets.commands.length === 0) return false;
  const [name = '', ...args] = (await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')).split('\0');
  return targets.commands.some(({ names, argument }) => names.includes(name) && args.includes(argument));
}

/**
 * @typedef {{ lines: Set<string>, users: Set<number>, agents: Set<number> }} Marks
 * @param {{ variable: string, directory: string }} marked
 * @returns {Marks}
 */
function readMarks({ variable, directory }) {
  const names = entries(directory, true);
  /** @type {Marks} */
  const marks = {
    lines: new Set(names.map((name) => `${variable}=${name}`)),
    users: new Set(),
    agents: new Set(),
  };
  for (const name of names) {
    for (const generation of entries(join(directory, name), true)) {
      const record = parsed(text(join(directory, name, generation, 'instance.json')));
      if (Number.isInteger(record?.user) && record.user > 0) marks.users.add(record.user);
      const { pid, startedAt } = record?.agent ?? {};
      if (isAlive({ pid, startedAt })) marks.agents.add(pid);
    }
  }
  return marks;
}

/** @param {number} pid @param {Marks} marks */
async function isMarked(pid, { lines, users }) {
  if (lines.size === 0) return false;
  if (users.size > 0) {
    const [, ids = ''] = /^Uid:\s*(.*)$/m.exec(text(`/proc/${pid}/status`)) ?? [];
    if (ids.split(/\s+/).some((id) => users.has(Number(id)))) return true;
  }
  const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
  return environment.split('\0').some((line) => lines.has(line));
}

/** @param {Set<number>} pids @param {readonly Process[]} all */
function addRelatives(pids, all) {
  const own = all.find(({ pid }) => pid === process.pid)?.session;
  for (let before = -1; before < pids.size; ) {
    before = pids.size;
    const sessions = new Set(all.filter(({ pid }) => pids.has(pid)).map(({ session }) => session));
    for (const { pid, parent, session } of all)
      if (pids.has(parent) || (sessions.has(session) && session !== own)) pids.add(pid);
  }
}

/** @returns {Process[]} */
function readProcesses() {
  return entries('/proc', true)
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => readProcess(Number(name)) ?? []);
}

/** @param {number} pid @returns {Process | undefined} */
function readProcess(pid) {
  const line = text(`/proc/${pid}/stat`);
  const close = line.lastIndexOf(')');
  if (close < 0) return undefined;
  const fields = line.slice(close + 2).split(' ');
  const [state = '', parent, , session] = fields;
  return {
    pid,
    parent: Number(parent),
    session: Number(session),
    startedAt: fields[19] ?? '',
    isDead: state === 'Z' || state === 'X',
  };
}

/** @param {{ pid?: number | undefined, startedAt?: string | undefined }} wanted */
function isAlive({ pid, startedAt }) {
  const found = pid === undefined ? undefined : readProcess(pid);
  return found !== undefined && found.startedAt === startedAt && !found.isDead;
}

/** @param {number} pid @param {NodeJS.Signals} signal */
function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended, or it ends with the next look.
  }
}

function bootTime() {
  const length = readSync(uptime, uptimeBuffer, 0, uptimeBuffer.length, 0);
  return Number.parseFloat(uptimeBuffer.toString('latin1', 0, length)) * 1_000;
}

/** The kernel should end any other process first. Only root may ask for that. */
function protectFromMemoryPressure() {
  try {
    writeFileSync('/proc/self/oom_score_adj', '-999');
  } catch {
    // The guard works without.
  }
}

/**
 * On a machine that is overloaded a process may wait for many seconds, longer than there is between the deadline and the end of the
 * lease. Only root may ask for that. The second file is for kernels that share the processors between sessions.
 */
function runBeforeOthers() {
  try {
    setPriority(constants.priority.PRIORITY_HIGHEST);
    writeFileSync('/proc/self/autogroup', String(constants.priority.PRIORITY_HIGHEST));
  } catch {
    // The guard works without.
  }
}

/** @param {string} path */
function text(path) {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

/** @param {string} path @param {boolean} directories @returns {string[]} */
function entries(path, directories) {
  try {
    return readdirSync(path, { withFileTypes: true }).flatMap((entry) =>
      !directories || entry.isDirectory() ? [entry.name] : [],
    );
  } catch {
    return [];
  }
}

/** @param {string} json */
function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** @param {string} what @param {object} facts */
function say(what, facts) {
  try {
    writeSync(
      2,
      `${JSON.stringify({ level: 'warn', time: Date.now(), event: 'guard', ...facts, msg: what })}\n`,
    );
  } catch {
    // No reader is left.
  }
}
