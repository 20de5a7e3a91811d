/** The table of all commands. The code of a command is loaded only when it is called. */
import type { Define } from './cli.ts';

export interface CommandEntry {
  readonly name: string;
  readonly aliases?: readonly string[];
  readonly group: string;
  readonly summary: string;
  /** Whether the command handles interrupts itself. */
  readonly ownSignals?: boolean;
  readonly load: () => Promise<{ readonly define: Define }>;
}

const BUILDS = 'Builds';
const SANDBOXES = 'Sandboxes';
const LIFECYCLE = 'Pause, resume and checkpoints';
const WORK = 'Work in a sandbox';
const HISTORY = 'History';
const SERVER = 'Server';

export const COMMANDS: readonly CommandEntry[] = [
  {
    name: 'build',
    aliases: ['builds'],
    group: BUILDS,
    summary: 'build an application from a goal (ls, logs, cancel, open, …)',
    load: () => import('./commands/build.ts'),
  },
  {
    name: 'create',
    aliases: ['new'],
    group: SANDBOXES,
    summary: 'create a sandbox',
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
    summary: 'show one sandbox',
    load: () => import('./commands/get.ts'),
  },
  {
    name: 'health',
    group: SANDBOXES,
    summary: 'check whether a sandbox and its agent answer',
    load: () => import('./commands/health.ts'),
  },
  {
    name: 'drives',
    aliases: ['df'],
    group: SANDBOXES,
    summary: 'show the disk usage of a sandbox',
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
    summary: 'kill sandboxes',
    load: () => import('./commands/kill.ts'),
  },
  {
    name: 'pause',
    aliases: ['sleep', 'hibernate', 'suspend'],
    group: LIFECYCLE,
    summary: 'pause a sandbox',
    load: () => import('./commands/pause.ts'),
  },
  {
    name: 'resume',
    aliases: ['wake', 'unpause'],
    group: LIFECYCLE,
    summary: 'resume a sandbox',
    load: () => import('./commands/resume.ts'),
  },
  {
    name: 'fork',
    group: LIFECYCLE,
    summary: 'make copies of a sandbox in its current state',
    load: () => import('./commands/fork.ts'),
  },
  {
    name: 'snapshot',
    group: LIFECYCLE,
    summary: 'seal a checkpoint without stopping the sandbox',
    load: () => import('./commands/snapshot.ts'),
  },
  {
    name: 'checkpoints',
    aliases: ['checkpoint'],
    group: LIFECYCLE,
    summary: 'list, name, verify and delete checkpoints',
    load: () => import('./commands/checkpoints.ts'),
  },
  {
    name: 'rollback',
    group: LIFECYCLE,
    summary: 'return a sandbox to a checkpoint',
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
    summary: 'list the processes of a sandbox',
    load: () => import('./commands/ps.ts'),
  },
  {
    name: 'job',
    aliases: ['jobs'],
    group: WORK,
    summary: 'manage services and background processes (ls, get, end, logs)',
    load: () => import('./commands/job.ts'),
  },
  {
    name: 'logs',
    group: WORK,
    summary: 'show the output of a service or background process',
    load: () => import('./commands/logs.ts'),
  },
  {
    name: 'ports',
    group: WORK,
    summary: 'list the ports of a sandbox and their addresses',
    load: () => import('./commands/ports.ts'),
  },
  {
    name: 'session',
    aliases: ['sessions'],
    group: WORK,
    summary:
      'talk to a program in a sandbox that may be paused in between (ls, send, log, wakes, rebind, move, end)',
    load: () => import('./commands/session.ts'),
  },
  {
    name: 'mcp',
    group: WORK,
    summary: 'give a model sandboxes as tools (Model Context Protocol)',
    load: () => import('./commands/mcp.ts'),
  },
  {
    name: 'events',
    group: HISTORY,
    summary: 'show events from the ledger',
    load: () => import('./commands/events.ts'),
  },
  {
    name: 'ops',
    aliases: ['operations'],
    group: HISTORY,
    summary: 'show operations and their outcome',
    load: () => import('./commands/ops.ts'),
  },
  {
    name: 'audit',
    group: HISTORY,
    summary: 'show who changed what (export)',
    load: () => import('./commands/audit.ts'),
  },
  {
    name: 'webhook',
    aliases: ['webhooks'],
    group: HISTORY,
    summary: 'send events to other programs (ls, create, get, rm, test, replay, dead-letters)',
    load: () => import('./commands/webhook.ts'),
  },
  {
    name: 'secret',
    aliases: ['secrets'],
    group: HISTORY,
    summary: 'keys that sandboxes use and never see (ls, set, rm)',
    load: () => import('./commands/secret.ts'),
  },
  {
    name: 'up',
    aliases: ['serve', 'start'],
    group: SERVER,
    summary: 'start a server on this machine',
    ownSignals: true,
    load: () => import('./commands/up.ts'),
  },
  {
    name: 'service',
    group: SERVER,
    summary: 'run the server with systemd (install)',
    load: () => import('./commands/service.ts'),
  },
  {
    name: 'template',
    aliases: ['templates'],
    group: SERVER,
    summary: 'manage templates (ls, create, build, rebuild, publish, unpublish, rm)',
    load: () => import('./commands/template.ts'),
  },
  {
    name: 'runtimes',
    aliases: ['runtime'],
    group: SERVER,
    summary: 'list runtimes and their capabilities',
    load: () => import('./commands/runtimes.ts'),
  },
  {
    name: 'keys',
    aliases: ['key'],
    group: SERVER,
    summary: 'manage API keys (ls, create, revoke)',
    load: () => import('./commands/keys.ts'),
  },
  {
    name: 'org',
    aliases: ['orgs'],
    group: SERVER,
    summary: 'manage organisations and their quotas (ls, create, get, set-quota, set-retention, delete)',
    load: () => import('./commands/org.ts'),
  },
  {
    name: 'node',
    aliases: ['nodes'],
    group: SERVER,
    summary: 'manage the nodes of a cluster (ls, get, cordon, uncordon, drain, forget)',
    load: () => import('./commands/node.ts'),
  },
  {
    name: 'usage',
    group: SERVER,
    summary: 'show the usage of an organisation',
    load: () => import('./commands/usage.ts'),
  },
  {
    name: 'page',
    group: SERVER,
    summary: 'print a link that signs a browser in at the page',
    load: () => import('./commands/page.ts'),
  },
  {
    name: 'down',
    group: SERVER,
    summary: 'pause every sandbox and stop the server',
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
    summary: 'remove a data directory that no sandbox runs from',
    load: () => import('./commands/destroy.ts'),
  },
  {
    name: 'doctor',
    group: SERVER,
    summary: 'check this machine and the server',
    load: () => import('./commands/doctor.ts'),
  },
  {
    name: 'fsck',
    group: SERVER,
    summary: 'compare records with sandboxes and checkpoints, and repair',
    load: () => import('./commands/fsck.ts'),
  },
  {
    name: 'version',
    group: SERVER,
    summary: 'show the version of torpor',
    load: () => import('./commands/version.ts'),
  },
  {
    name: 'completion',
    group: SERVER,
    summary: 'print a script for shell completion',
    load: () => import('./commands/completion.ts'),
  },
];

export function findCommand(name: string): CommandEntry | undefined {
  return COMMANDS.find((entry) => entry.name === name || entry.aliases?.includes(name));
}
