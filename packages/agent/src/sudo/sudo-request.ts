/** Turns a request of the `sudo` program into the process to start. */
import { SANDBOX_VARIABLE } from '@torpor/envd';
import type { User } from '../identity/users.ts';
import type { LaunchSpec, TerminalSize } from '../processes/started-process.ts';
import type { Command } from './arguments.ts';

/** The first message of the `sudo` program: the command, and where the program was called. */
export interface SudoRequest {
  readonly command: Command;
  readonly directory: string;
  readonly env: Readonly<Record<string, string>>;
  readonly pid: number;
  /** Set when stdin, stdout and stderr are all a terminal. */
  readonly terminal: TerminalSize | null;
}

/**
 * Throws for anything that the `sudo` program would not send: any process of an allowed user can write to the socket.
 */
export function parseSudoRequest(text: string): SudoRequest {
  const request: unknown = JSON.parse(text);
  if (!isSudoRequest(request)) throw new Error('the request is malformed');
  return request;
}

function isSudoRequest(value: unknown): value is SudoRequest {
  if (!isRecord(value)) return false;
  const { command, directory, env, pid, terminal } = value;
  return (
    isCommand(command) &&
    typeof directory === 'string' &&
    isStringRecord(env) &&
    Number.isSafeInteger(pid) &&
    (terminal === null || isTerminalSize(terminal))
  );
}

function isCommand(value: unknown): value is Command {
  if (!isRecord(value)) return false;
  const { user, group, shell, words, assignments, keep, setHome, directory, background } = value;
  return (
    typeof user === 'string' &&
    isOptionalString(group) &&
    (shell === 'none' || shell === 'shell' || shell === 'login') &&
    isStringList(words) &&
    isStringRecord(assignments) &&
    (keep === 'all' || isStringList(keep)) &&
    typeof setHome === 'boolean' &&
    isOptionalString(directory) &&
    typeof background === 'boolean'
  );
}

/** The terminal itself checks the range of the numbers. */
export function isTerminalSize(value: unknown): value is TerminalSize {
  return isRecord(value) && typeof value['cols'] === 'number' && typeof value['rows'] === 'number';
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function isStringRecord(value: unknown): value is Record<string, string> {
  return isRecord(value) && Object.values(value).every((each) => typeof each === 'string');
}

function isStringList(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

function isOptionalString(value: unknown): value is string | undefined {
  return value === undefined || typeof value === 'string';
}

export interface LaunchInput {
  readonly request: SudoRequest;
  readonly caller: User;
  readonly target: User;
  /** The agent's own PATH, LANG and TZ. */
  readonly agentEnv: NodeJS.ProcessEnv;
  readonly sandboxId: string;
}

const KEPT_BYTES = 1024 * 1024;

/** Variables for language and display, which every command gets. */
const ALWAYS_KEPT = /^(TERM|COLORTERM|DISPLAY|LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR)$/;
/** A caller must not make a program with other rights load libraries or run startup scripts. */
const NEVER_KEPT = /^(LD_|TORPOR_|BASH_FUNC_|SUDO_)|^(IFS|ENV|BASH_ENV|CDPATH)$/;

export function launchSpec(launch: LaunchInput): Omit<LaunchSpec, 'user'> {
  const { request, target } = launch;
  const [command, ...args] = commandLine(request.command, request.env['SHELL'], target);
  const isLogin = request.command.shell === 'login';
  return {
    command: command ?? target.shell,
    args,
    cwd: request.command.directory ?? (isLogin ? target.home : request.directory),
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

/** Leaves `$` unquoted, as sudo does: with a shell, the caller may mean its variables. */
function quoted(word: string): string {
  return word === ''
    ? "''"
    : word.replace(/[^A-Za-z0-9_$\-\u0080-\u{10ffff}]/gu, '\\$&').replace(/\\\n/g, "'\n'");
}

function environment({ request, caller, target, agentEnv, sandboxId }: LaunchInput): Record<string, string> {
  const { keep, setHome, shell, assignments, words } = request.command;
  const isKept = (name: string) =>
    ALWAYS_KEPT.test(name) || (shell !== 'login' && (keep === 'all' || keep.includes(name)));
  const kept = Object.entries(request.env).filter(([name]) => isKept(name) && !NEVER_KEPT.test(name));
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
    // Last, so that callers cannot override it: a runtime finds the processes of a sandbox by this variable.
    [SANDBOX_VARIABLE]: sandboxId,
  };
}

function pick(env: NodeJS.ProcessEnv, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((name) => (env[name] ? [[name, env[name]]] : [])));
}
