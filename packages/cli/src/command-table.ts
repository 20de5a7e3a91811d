/** Every command, with what it takes to find and list it. What it does is loaded when it is called. */
import type { Define } from './cli.ts';

export interface CommandEntry {
  readonly name: string;
  readonly aliases?: readonly string[];
  readonly group: string;
  readonly summary: string;
  /** Whether it decides itself what an interrupt means. */
  readonly ownSignals?: boolean;
  readonly load: () => Promise<{ readonly define: Define }>;
}

const BUILDS = 'Builds';
const SANDBOXES = 'Sandboxes';
const SLEEP = 'Sleep and wake';
const WORK = 'Work inside';
const HISTORY = 'Look back';
const SERVER = 'The server';

export const COMMANDS: readonly CommandEntry[] = [
  {
    name: 'build',
    aliases: ['builds'],
    group: BUILDS,
    summary: 'turn a goal into a live preview (ls, logs, cancel, open, …)',
    load: () => import('./commands/build.ts'),
  },
  {
    name: 'create',
    aliases: ['new'],
    group: SANDBOXES,
    summary: 'make a sandbox',
    load: () => import('./commands/create.ts'),
  },
  {
    name: 'ls',
    aliases: ['list'],
    group: SANDBOXES,
    summary: 'list sandboxes',
    load: () => import('./commands/ls.ts'),
  },
  {
    name: 'get',
    aliases: ['show'],
    group: SANDBOXES,
    summary: 'everything about one sandbox',
    load: () => import('./commands/get.ts'),
  },
  {
    name: 'health',
    group: SANDBOXES,
    summary: 'whether a sandbox and its agent answer',
    load: () => import('./commands/health.ts'),
  },
  {
    name: 'drives',
    aliases: ['df'],
    group: SANDBOXES,
    summary: 'how full the filesystems of a sandbox are',
    load: () => import('./commands/drives.ts'),
  },
  {
    name: 'timeout',
    group: SANDBOXES,
    summary: 'set how long a sandbox may run',
    load: () => import('./commands/timeout.ts'),
  },
  {
    name: 'retention',
    group: SANDBOXES,
    summary: 'set how long a paused sandbox is kept',
    load: () => import('./commands/retention.ts'),
  },
  {
    name: 'network',
    group: SANDBOXES,
    summary: 'show or set what a sandbox may reach',
    load: () => import('./commands/network.ts'),
  },
  {
    name: 'kill',
    aliases: ['rm', 'delete'],
    group: SANDBOXES,
    summary: 'end sandboxes for good',
    load: () => import('./commands/kill.ts'),
  },
  {
    name: 'pause',
    aliases: ['sleep', 'hibernate', 'suspend'],
    group: SLEEP,
    summary: 'put a sandbox to sleep',
    load: () => import('./commands/pause.ts'),
  },
  {
    name: 'resume',
    aliases: ['wake', 'unpause'],
    group: SLEEP,
    summary: 'wake a sandbox',
    load: () => import('./commands/resume.ts'),
  },
  {
    name: 'fork',
    group: SLEEP,
    summary: 'make copies of a sandbox as it is now',
    load: () => import('./commands/fork.ts'),
  },
  {
    name: 'snapshot',
    group: SLEEP,
    summary: 'seal a checkpoint while the sandbox goes on',
    load: () => import('./commands/snapshot.ts'),
  },
  {
    name: 'checkpoints',
    aliases: ['checkpoint'],
    group: SLEEP,
    summary: 'list, verify and delete checkpoints',
    load: () => import('./commands/checkpoints.ts'),
  },
  {
    name: 'rollback',
    group: SLEEP,
    summary: 'bring a sandbox back to a checkpoint',
    load: () => import('./commands/rollback.ts'),
  },
  {
    name: 'exec',
    aliases: ['run'],
    group: WORK,
    summary: 'run a command in a sandbox',
    load: () => import('./commands/exec.ts'),
  },
  {
    name: 'shell',
    aliases: ['sh', 'ssh'],
    group: WORK,
    summary: 'open a terminal in a sandbox',
    load: () => import('./commands/shell.ts'),
  },
  {
    name: 'files',
    aliases: ['fs'],
    group: WORK,
    summary: 'list, read, write and remove files (ls, cat, put, get, rm)',
    load: () => import('./commands/files.ts'),
  },
  {
    name: 'ps',
    aliases: ['processes'],
    group: WORK,
    summary: 'what runs in a sandbox',
    load: () => import('./commands/ps.ts'),
  },
  {
    name: 'job',
    aliases: ['jobs'],
    group: WORK,
    summary: 'services and background processes by their ids (ls, get, end, logs)',
    load: () => import('./commands/job.ts'),
  },
  {
    name: 'logs',
    group: WORK,
    summary: 'output of a service or background process',
    load: () => import('./commands/logs.ts'),
  },
  {
    name: 'ports',
    group: WORK,
    summary: 'ports of a sandbox and their addresses',
    load: () => import('./commands/ports.ts'),
  },
  {
    name: 'session',
    aliases: ['sessions'],
    group: WORK,
    summary:
      'talk to a program in a sandbox that sleeps in between (ls, send, log, wakes, rebind, move, end)',
    load: () => import('./commands/session.ts'),
  },
  {
    name: 'events',
    group: HISTORY,
    summary: 'what happened, from the ledger',
    load: () => import('./commands/events.ts'),
  },
  {
    name: 'ops',
    aliases: ['operations'],
    group: HISTORY,
    summary: 'what was asked for, and how it ended',
    load: () => import('./commands/ops.ts'),
  },
  {
    name: 'up',
    aliases: ['serve', 'start'],
    group: SERVER,
    summary: 'start the server here',
    ownSignals: true,
    load: () => import('./commands/up.ts'),
  },
  {
    name: 'template',
    aliases: ['templates'],
    group: SERVER,
    summary: 'what sandboxes can be made from',
    load: () => import('./commands/template.ts'),
  },
  {
    name: 'runtimes',
    aliases: ['runtime'],
    group: SERVER,
    summary: 'what runs sandboxes, and what each can do',
    load: () => import('./commands/runtimes.ts'),
  },
  {
    name: 'keys',
    aliases: ['key'],
    group: SERVER,
    summary: 'API keys (ls, create, revoke)',
    load: () => import('./commands/keys.ts'),
  },
  {
    name: 'org',
    aliases: ['orgs'],
    group: SERVER,
    summary: 'organisations and their quotas (ls, create, get, set-quota, delete)',
    load: () => import('./commands/org.ts'),
  },
  {
    name: 'usage',
    group: SERVER,
    summary: 'what an organisation used',
    load: () => import('./commands/usage.ts'),
  },
  {
    name: 'down',
    group: SERVER,
    summary: 'put every sandbox to sleep and stop the server',
    load: () => import('./commands/down.ts'),
  },
  {
    name: 'backup',
    group: SERVER,
    summary: 'save a data directory, also while its server runs',
    load: () => import('./commands/backup.ts'),
  },
  {
    name: 'restore',
    group: SERVER,
    summary: 'make a data directory from a backup',
    load: () => import('./commands/restore.ts'),
  },
  {
    name: 'destroy',
    group: SERVER,
    summary: 'remove a data directory that nothing runs from',
    load: () => import('./commands/destroy.ts'),
  },
  {
    name: 'doctor',
    group: SERVER,
    summary: 'check this machine, and say what to do',
    load: () => import('./commands/doctor.ts'),
  },
  {
    name: 'fsck',
    group: SERVER,
    summary: 'make what is so and what is written agree',
    load: () => import('./commands/fsck.ts'),
  },
  {
    name: 'version',
    group: SERVER,
    summary: 'the version of torpor',
    load: () => import('./commands/version.ts'),
  },
  {
    name: 'completion',
    group: SERVER,
    summary: 'let your shell complete commands',
    load: () => import('./commands/completion.ts'),
  },
];

export function findCommand(name: string): CommandEntry | undefined {
  return COMMANDS.find((entry) => entry.name === name || entry.aliases?.includes(name));
}
