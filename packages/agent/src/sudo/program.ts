/**
 * The program `sudo` in a sandbox: `sudo.cjs <directory of the door> [arguments of sudo]`.
 *
 * Programs with other rights than their caller's do not exist in every kind of sandbox, so this one has
 * none: it asks the agent, which is root, and carries input, output, signals and the exit code.
 */
import { spawnSync } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { hostname, userInfo } from 'node:os';
import { type Command, parseSudo } from './arguments.ts';
import { FrameReader, frame } from './frames.ts';
import { socketOf } from './socket-path.ts';
import type { Order } from './sudo-request.ts';

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const;

const USAGE = `usage: sudo [-u user] [-g group] [-D directory] [-EHbn] [VAR=value] command [argument…]
       sudo [-u user] -i | -s [command [argument…]]
       sudo -l | -v | -k
`;

/** What the shell that started us had to clear to start us unharmed. */
const SAVED_NODE_OPTIONS = 'TORPOR_SUDO_NODE_OPTIONS';

function main(): void {
  const [directory = '', ...args] = process.argv.slice(2);
  const asked = parseSudo(args);
  if (asked.is === 'run') run(directory, asked.command);
  else if (asked.is === 'list' || asked.is === 'validate') check(directory, asked.is);
  else if (asked.is === 'mistake') fail(`${asked.why}\n${USAGE.trimEnd()}`);
  else say({ help: USAGE, version: 'sudo of this sandbox\n', forget: '' }[asked.is]);
}

function finish(code: number): never {
  process.exit(code);
}

function say(text: string): never {
  process.stdout.write(text);
  finish(0);
}

function fail(why: string): never {
  process.stderr.write(`sudo: ${why}\n`);
  finish(1);
}

function ownName(): string {
  try {
    return userInfo().username;
  } catch {
    return `#${process.getuid?.()}`;
  }
}

/** Calls back once the agent has let us in. */
function open(directory: string, entered: (socket: Socket) => void): void {
  const socket = connect(socketOf(directory, process.getuid?.() ?? -1));
  socket.once('connect', () => entered(socket));
  socket.on('error', (error: NodeJS.ErrnoException) => {
    const isRefused = error.code === 'ENOENT' || error.code === 'EACCES';
    fail(
      isRefused ? `${ownName()} may not use sudo in this sandbox.` : `the agent is gone: ${error.message}`,
    );
  });
}

function check(directory: string, what: 'list' | 'validate'): void {
  open(directory, () => {
    const about = `User ${ownName()} may run the following commands on ${hostname()}:`;
    say(what === 'validate' ? '' : `${about}\n    (ALL : ALL) NOPASSWD: ALL\n`);
  });
}

function run(directory: string, command: Command): void {
  open(directory, (socket) => {
    const order = orderFor(command);
    socket.write(frame('order', JSON.stringify(order)));
    for (const signal of FORWARDED) process.on(signal, () => socket.write(frame('signal', signal)));
    if (order.terminal !== null) becomeTerminal(socket);
    // A reader that went away ends us as it would end any program.
    process.stdout.on('error', () => finish(141));
    process.stderr.on('error', () => {});
    const sendInput = inputSender(socket);
    const frames = new FrameReader();
    let isOver = false;
    socket.on('data', (piece) => {
      for (const { kind, bytes } of frames.push(piece as Buffer)) {
        if (kind === 'stdout' || kind === 'stderr') pass(process[kind], bytes, socket);
        if (kind === 'wantInput') sendInput();
        if (kind === 'exit') end(() => finish(Number(bytes.toString('utf8'))));
        if (kind === 'refused') end(() => fail(bytes.toString('utf8')));
        isOver ||= kind === 'exit' || kind === 'refused';
      }
    });
    socket.on('end', () => isOver || fail('the agent is gone.'));
  });
}

/** Slow readers hold the agent back, and so the command. */
function pass(to: NodeJS.WriteStream, bytes: Buffer, from: Socket): void {
  if (to.write(bytes)) return;
  from.pause();
  to.once('drain', () => from.resume());
}

/** Everything written so far goes out first. */
function end(last: () => void): void {
  process.stdout.write('', () => process.stderr.write('', last));
}

function orderFor(command: Command): Order {
  const { [SAVED_NODE_OPTIONS]: saved, ...env } = process.env as Record<string, string>;
  const all = [process.stdin, process.stdout, process.stderr];
  const { columns, rows } = process.stdout;
  return {
    command,
    directory: ownDirectory(),
    env: saved ? { ...env, NODE_OPTIONS: saved } : env,
    pid: process.pid,
    terminal: all.every((stream) => stream.isTTY) ? { cols: columns || 80, rows: rows || 24 } : null,
  };
}

function ownDirectory(): string {
  try {
    return process.cwd();
  } catch {
    return '/';
  }
}

/** The command has a terminal of its own; ours only carries what goes in and out of that. */
function becomeTerminal(socket: Socket): void {
  const restore = makeRaw();
  process.on('exit', restore);
  process.stdout.on('resize', () => {
    const { columns: cols, rows } = process.stdout;
    socket.write(frame('size', JSON.stringify({ cols, rows })));
  });
}

/**
 * Gives the way back. Node's own raw mode still writes a return before every new line, on top of what the
 * terminal of the command has done, and so breaks programs that draw; it has to do where there is no `stty`.
 */
function makeRaw(): () => void {
  const stdio = ['inherit', 'pipe', 'ignore'] as const;
  const saved = spawnSync('stty', ['-g'], { stdio: [...stdio], encoding: 'utf8' }).stdout?.trim();
  const isRaw = saved && spawnSync('stty', ['raw', '-echo'], { stdio: [...stdio] }).status === 0;
  if (isRaw) return () => void spawnSync('stty', [saved], { stdio: [...stdio] });
  process.stdin.setRawMode(true);
  return () => void process.stdin.setRawMode(false);
}

/** Sends one piece each time it is called, when there is one. Nothing is read before the first call. */
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
