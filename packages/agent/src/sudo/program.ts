/**
 * The program `sudo` in a sandbox: `sudo.cjs <directory of the sudo sockets> [arguments of sudo]`.
 *
 * Not every kind of sandbox supports setuid programs, so this one has only the rights of its caller. It asks the agent,
 * which runs as root, to start the command, and forwards input, output, signals and the exit code.
 */
import { spawnSync } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { hostname, userInfo } from 'node:os';
import { type Command, parseSudo } from './arguments.ts';
import { FrameReader, frame } from './frames.ts';
import { socketOf } from './socket-path.ts';
import type { SudoRequest } from './sudo-request.ts';

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const;

const USAGE = `usage: sudo [-u user] [-g group] [-D directory] [-EHbn] [VAR=value] command [argument…]
       sudo [-u user] -i | -s [command [argument…]]
       sudo -l | -v | -k
`;

/** The caller's NODE_OPTIONS. The shell script that starts this program clears the original, which could break Node. */
const SAVED_NODE_OPTIONS = 'TORPOR_SUDO_NODE_OPTIONS';

function main(): void {
  const [directory = '', ...args] = process.argv.slice(2);
  const asked = parseSudo(args);
  if (asked.is === 'run') run(directory, asked.command);
  else if (asked.is === 'list' || asked.is === 'validate') check(directory, asked.is);
  else if (asked.is === 'mistake') failAndExit(`${asked.why}\n${USAGE.trimEnd()}`);
  else printAndExit({ help: USAGE, version: 'sudo of this sandbox\n', forget: '' }[asked.is]);
}

function exit(code: number): never {
  process.exit(code);
}

function printAndExit(text: string): never {
  process.stdout.write(text);
  exit(0);
}

function failAndExit(why: string): never {
  process.stderr.write(`sudo: ${why}\n`);
  exit(1);
}

function callerName(): string {
  try {
    return userInfo().username;
  } catch {
    return `#${process.getuid?.()}`;
  }
}

/** Calls `entered` once the agent has accepted the connection. */
function open(directory: string, entered: (socket: Socket) => void): void {
  const socket = connect(socketOf(directory, process.getuid?.() ?? -1));
  socket.once('connect', () => entered(socket));
  socket.on('error', (error: NodeJS.ErrnoException) => {
    const isRefused = error.code === 'ENOENT' || error.code === 'EACCES';
    failAndExit(
      isRefused ? `${callerName()} may not use sudo in this sandbox.` : `the agent is gone: ${error.message}`,
    );
  });
}

function check(directory: string, what: 'list' | 'validate'): void {
  open(directory, () => {
    const about = `User ${callerName()} may run the following commands on ${hostname()}:`;
    printAndExit(what === 'validate' ? '' : `${about}\n    (ALL : ALL) NOPASSWD: ALL\n`);
  });
}

function run(directory: string, command: Command): void {
  open(directory, (socket) => {
    const request = describeCall(command);
    socket.write(frame('request', JSON.stringify(request)));
    for (const signal of FORWARDED) process.on(signal, () => socket.write(frame('signal', signal)));
    if (request.terminal !== null) forwardTerminal(socket);
    // The reader of the output is gone. Exit as a program that SIGPIPE ends: 128 + 13.
    process.stdout.on('error', () => exit(141));
    process.stderr.on('error', () => {});
    const sendInput = inputSender(socket);
    const frames = new FrameReader();
    let isOver = false;
    socket.on('data', (piece) => {
      for (const { kind, bytes } of frames.push(piece as Buffer)) {
        if (kind === 'stdout' || kind === 'stderr') forward(process[kind], bytes, socket);
        if (kind === 'wantInput') sendInput();
        if (kind === 'exit') afterFlush(() => exit(Number(bytes.toString('utf8'))));
        if (kind === 'refused') afterFlush(() => failAndExit(bytes.toString('utf8')));
        isOver ||= kind === 'exit' || kind === 'refused';
      }
    });
    socket.on('end', () => isOver || failAndExit('the agent is gone.'));
  });
}

/** A slow reader pauses the socket, which holds back the agent and so the command. */
function forward(to: NodeJS.WriteStream, bytes: Buffer, from: Socket): void {
  if (to.write(bytes)) return;
  from.pause();
  to.once('drain', () => from.resume());
}

/** Calls `last` after everything written so far has been flushed. */
function afterFlush(last: () => void): void {
  process.stdout.write('', () => process.stderr.write('', last));
}

function describeCall(command: Command): SudoRequest {
  const { [SAVED_NODE_OPTIONS]: saved, ...env } = process.env as Record<string, string>;
  const all = [process.stdin, process.stdout, process.stderr];
  const { columns, rows } = process.stdout;
  return {
    command,
    directory: currentDirectory(),
    env: saved ? { ...env, NODE_OPTIONS: saved } : env,
    pid: process.pid,
    terminal: all.every((stream) => stream.isTTY) ? { cols: columns || 80, rows: rows || 24 } : null,
  };
}

function currentDirectory(): string {
  try {
    return process.cwd();
  } catch {
    return '/';
  }
}

/** The command has a terminal of its own. The caller's terminal is set to raw mode and only forwards bytes. */
function forwardTerminal(socket: Socket): void {
  const restore = setRawMode();
  process.on('exit', restore);
  process.stdout.on('resize', () => {
    const { columns: cols, rows } = process.stdout;
    socket.write(frame('size', JSON.stringify({ cols, rows })));
  });
}

/**
 * Returns a function that restores the mode. Node's own raw mode still writes a carriage return before every line feed,
 * which the command's terminal has done already, and so breaks full-screen programs. It is used only where there is no
 * `stty`.
 */
function setRawMode(): () => void {
  const stdio = ['inherit', 'pipe', 'ignore'] as const;
  const saved = spawnSync('stty', ['-g'], { stdio: [...stdio], encoding: 'utf8' }).stdout?.trim();
  const isRaw = saved && spawnSync('stty', ['raw', '-echo'], { stdio: [...stdio] }).status === 0;
  if (isRaw) return () => void spawnSync('stty', [saved], { stdio: [...stdio] });
  process.stdin.setRawMode(true);
  return () => void process.stdin.setRawMode(false);
}

/** Sends one piece of input for each call, as soon as there is one. Reads nothing before the first call. */
function inputSender(socket: Socket): () => void {
  let isWanted = false;
  let isOpen = false;
  const send = () => {
    if (!isWanted) return;
    const piece = process.stdin.read() as Buffer | null;
    if (piece === null) return;
    isWanted = false;
    socket.write(frame('input', piece));
  };
  return () => {
    isWanted = true;
    if (isOpen) return send();
    isOpen = true;
    process.stdin.on('readable', send);
    process.stdin.on('end', () => socket.write(frame('inputEnd')));
    process.stdin.on('error', () => socket.write(frame('inputEnd')));
  };
}

main();
