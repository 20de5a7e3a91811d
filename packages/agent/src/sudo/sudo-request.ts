/** From what a caller of `sudo` asked for to what is started. */
import { SANDBOX_VARIABLE } from '@torpor/envd';
import type { User } from '../identity/users.ts';
import type { LaunchOrder, TerminalSize } from '../processes/started-process.ts';
import type { Command } from './arguments.ts';

/** The first message of the `sudo` program, about itself. */
export interface Order {
  readonly command: Command;
  readonly directory: string;
  readonly env: Readonly<Record<string, string>>;
  readonly pid: number;
  /** When all three of its descriptors are one. */
  readonly terminal: TerminalSize | null;
}

export interface Launch {
  readonly order: Order;
  readonly caller: User;
  readonly target: User;
  /** The agent's own PATH, LANG and TZ. */
  readonly agentEnv: NodeJS.ProcessEnv;
  readonly sandboxId: string;
}

const KEPT_BYTES = 1024 * 1024;

/** What a command needs to speak to the person in front of it. */
const ALWAYS_KEPT = /^(TERM|COLORTERM|DISPLAY|LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR)$/;
/** Libraries named by a caller are not loaded into what runs with other rights. */
const NEVER_KEPT = /^(LD_|TORPOR_|BASH_FUNC_|SUDO_)|^(IFS|ENV|BASH_ENV|CDPATH)$/;

export function launchOrder(launch: Launch): Omit<LaunchOrder, 'user'> {
  const { order, target } = launch;
  const [command, ...args] = commandLine(order.command, order.env['SHELL'], target);
  const isLogin = order.command.shell === 'login';
  return {
    command: command ?? target.shell,
    args,
    cwd: order.command.directory ?? (isLogin ? target.home : order.directory),
    env: environment(launch),
    keptBytes: KEPT_BYTES,
  };
}

function commandLine(
  { shell, words }: Command,
  callersShell: string | undefined,
  target: User,
): readonly string[] {
  if (shell === 'none') return words;
  const line = words.length === 0 ? [] : ['-c', words.map(quoted).join(' ')];
  return shell === 'login' ? [target.shell, '-l', ...line] : [callersShell || target.shell, ...line];
}

/** Dollars stay as they are: whoever asks for a shell may mean its variables. */
function quoted(word: string): string {
  return word === ''
    ? "''"
    : word.replace(/[^A-Za-z0-9_$\-\u0080-\u{10ffff}]/gu, '\\$&').replace(/\\\n/g, "'\n'");
}

function environment({ order, caller, target, agentEnv, sandboxId }: Launch): Record<string, string> {
  const { keep, setHome, shell, assignments, words } = order.command;
  const isKept = (name: string) =>
    ALWAYS_KEPT.test(name) || (shell !== 'login' && (keep === 'all' || keep.includes(name)));
  const kept = Object.entries(order.env).filter(([name]) => isKept(name) && !NEVER_KEPT.test(name));
  const ownHome = kept.some(([name]) => name === 'HOME') && !setHome;
  return {
    ...pick(agentEnv, ['LANG', 'TZ']),
    ...Object.fromEntries(kept),
    ...pick(agentEnv, ['PATH']),
    ...(ownHome ? {} : { HOME: target.home }),
    USER: target.name,
    LOGNAME: target.name,
    SHELL: target.shell,
    SUDO_COMMAND: words.join(' ') || target.shell,
    SUDO_USER: caller.name,
    SUDO_UID: String(caller.uid),
    SUDO_GID: String(caller.gid),
    ...assignments,
    // Last, so that no process can be started which a runtime does not find again.
    [SANDBOX_VARIABLE]: sandboxId,
  };
}

function pick(env: NodeJS.ProcessEnv, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((name) => (env[name] ? [[name, env[name]]] : [])));
}
