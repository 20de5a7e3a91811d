/** `torpor session` with `ls`, `send`, `log`, `wakes`, `rebind`, `move` and `end`. */
import type { SandboxId, SessionId, SessionView, SessionWake, TurnReply } from '@torpor/protocol';
import type { Session } from '@torpor/sdk';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { EXIT } from '../exit-codes.ts';
import { CliError } from '../failure.ts';
import { relative } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { boundText, wakeColumns } from '../session-text.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface SendOptions {
  command?: string;
  service?: boolean;
  template?: string;
  runtime?: string;
}

const SESSION_ARGUMENT = 'session key or id, ses_…';

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list sessions')
    .option('-a, --all', 'include ended sessions')
    .action(handler<{ all?: boolean }>((cli, _, { all }) => list(cli, all ?? false)));
  command
    .command('send')
    .summary('send a turn and wait for the answer')
    .argument('<session>', SESSION_ARGUMENT)
    .argument('<words...>', 'input of the turn')
    .option('--command <command>', 'program of a new session')
    .option('--service', 'the program keeps running between turns (default: one run per turn)')
    .option('--template <name>', 'template of its sandbox')
    .option('--runtime <name>', "runtime of its sandbox (default: the server's)")
    .action(
      handler<SendOptions>((cli, [name = '', ...words], options) =>
        send(cli, name, words.join(' '), options),
      ),
    );
  command
    .command('log')
    .summary('show turns and answers')
    .argument('<session>', SESSION_ARGUMENT)
    .action(handler(async (cli, [name = '']) => log(cli, await sessionOf(cli, name))));
  command
    .command('wakes')
    .summary('show the wakes of its sandboxes, and what was lost')
    .argument('<session>', SESSION_ARGUMENT)
    .action(handler(async (cli, [name = '']) => wakes(cli, await sessionOf(cli, name))));
  command
    .command('rebind')
    .summary('bind it to a new sandbox, or to the one you name')
    .argument('<session>', SESSION_ARGUMENT)
    .argument('[sandbox]', 'sandbox id or name (default: a new one from its last files)')
    .action(handler((cli, [name = '', sandbox]) => rebind(cli, name, sandbox)));
  command
    .command('move')
    .summary('move it to a new sandbox on another runtime, without its files')
    .argument('<session>', SESSION_ARGUMENT)
    .requiredOption('--runtime <name>', 'runtime of its new sandboxes')
    .action(
      handler<{ runtime: string }>(async (cli, [name = ''], { runtime }) => {
        const moving = (await sessionOf(cli, name)).rebind({ runtime }, { signal: cli.signal });
        const { view } = await cli.withSpinner('Moving…', moving);
        cli.answer(view, () => boundText(name, view));
      }),
    );
  command
    .command('end')
    .alias('rm')
    .summary('end a session and kill its sandbox')
    .argument('<session>', SESSION_ARGUMENT)
    .option('-y, --yes', 'do not ask')
    .action(
      handler<{ yes?: boolean }>(async (cli, [name = ''], { yes }) => {
        const session = await sessionOf(cli, name);
        if (!yes) await confirm(cli, `End session ${name}? Its sandbox will be killed.`);
        const ended = await session.end({ signal: cli.signal });
        cli.answer(ended, () => `${name} is ended`);
      }),
    );
  addExamples(command, {
    examples: [
      ["torpor session send chat-1 --command 'my-agent' hello", 'opens the session the first time'],
      ['torpor session send chat-1 and now\\?', 'wakes its sandbox, or replaces a dead one'],
      ['torpor session log chat-1', 'all turns so far'],
      ['torpor session wakes chat-1', 'all wakes, and what was lost'],
    ],
    seeAlso: ['create', 'exec', 'events'],
  });
};

async function list(cli: Cli, ended: boolean): Promise<void> {
  const { sessions } = await cli.torpor();
  const items: SessionView[] = [];
  for await (const session of sessions.list({ ended, signal: cli.signal })) items.push(session);
  const now = cli.io.now();
  const rows = items.map((one) => [
    one.id,
    one.key,
    one.sandboxId ?? '-',
    statusOf(one),
    relative(one.createdAt, now),
  ]);
  cli.answer({ items, nextCursor: null }, () =>
    columns(['ID', 'KEY', 'SANDBOX', 'STATUS', 'CREATED'], rows, cli.io.colors),
  );
}

function statusOf({ endedAt, error, change }: SessionView): string {
  if (endedAt !== null) return 'ended';
  if (error !== null) return `${error.code}: ${error.message}`;
  if (change === null) return 'new';
  return change.why === null ? change.did : `${change.did} (${change.why})`;
}

async function find(cli: Cli, name: string): Promise<Session | undefined> {
  const { sessions } = await cli.torpor();
  const { signal } = cli;
  if (/^ses_[a-z0-9]{20}$/.test(name)) return sessions.get(name as SessionId, { signal });
  const { items } = await sessions.page({ key: name, limit: 1, signal });
  return items[0] === undefined ? undefined : sessions.get(items[0].id, { signal });
}

async function sessionOf(cli: Cli, name: string): Promise<Session> {
  const session = await find(cli, name);
  if (session !== undefined) return session;
  throw new CliError('NOT_FOUND', `There is no session ${name}.`, {
    hint: '`torpor session ls` lists them. `torpor session send … --command` opens one.',
  });
}

async function send(cli: Cli, name: string, input: string, options: SendOptions): Promise<number> {
  const session = (await find(cli, name)) ?? (await open(cli, name, options));
  const { signal } = cli;
  const { id } = await session.post(input, { signal });
  let shown = '';
  for await (const event of session.follow(id, { signal })) {
    if (cli.json) continue;
    if (event.type === 'stdout') cli.io.stdout.write(event.data);
    if (event.type === 'stderr') cli.io.stderr.write(event.data);
    if (event.type !== 'turn' || event.turn.error === null || event.turn.error.message === shown) continue;
    shown = event.turn.error.message;
    cli.note(event.turn.endedAt === null ? `The turn is stored and waits: ${shown}` : shown);
  }
  const turn = await session.turn(id, { signal });
  if (cli.json) cli.answer(turn, () => '');
  return turn.state === 'done' ? EXIT.ok : EXIT.general;
}

async function open(cli: Cli, key: string, options: SendOptions): Promise<Session> {
  const { command, service, template, runtime } = options;
  if (command === undefined) {
    throw new CliError('NOT_FOUND', `There is no session ${key}.`, {
      hint: 'Add --command to open one.',
    });
  }
  const program = { command, mode: service ? 'service' : 'turn' } as const;
  const request = { program, sandbox: withoutUndefined({ template, runtime }), spawn: false };
  return (await cli.torpor()).sessions.getOrSpawn(key, request, { signal: cli.signal });
}

async function log(cli: Cli, session: Session): Promise<void> {
  const items: TurnReply[] = [];
  for await (const turn of session.turns({ signal: cli.signal })) items.push(turn);
  cli.answer({ items, nextCursor: null }, () => items.map((turn) => turnText(cli, turn)).join('\n'));
}

async function wakes(cli: Cli, session: Session): Promise<void> {
  const items: SessionWake[] = [];
  for await (const wake of session.wakes({ signal: cli.signal })) items.push(wake);
  cli.answer({ items, nextCursor: null }, () => wakeColumns(items, cli.io.colors));
}

function turnText(cli: Cli, { seq, input, output, state, error }: TurnReply): string {
  const { colors } = cli.io;
  const end =
    state === 'done' ? '' : colors.yellow(`[${state}${error === null ? '' : `: ${error.message}`}]`);
  return [colors.dim(`#${seq} > ${input}`), output.trimEnd(), end].filter((line) => line !== '').join('\n');
}

async function rebind(cli: Cli, name: string, sandbox: string | undefined): Promise<void> {
  const session = await sessionOf(cli, name);
  const sandboxId: SandboxId | undefined = sandbox === undefined ? undefined : await sandboxOf(cli, sandbox);
  const bound = await cli.withSpinner(
    'Binding…',
    session.rebind(withoutUndefined({ sandboxId }), { signal: cli.signal }),
  );
  cli.answer(bound.view, () => boundText(name, bound.view));
}
