/** One call of `sudo`, from the agent's side: starts what was asked for and stands between the two ends. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { TorporError } from '@torpor/protocol';
import type { User } from '../identity/users.ts';
import { startPiped } from '../processes/piped-child.ts';
import { workingDirectory } from '../processes/process-environment.ts';
import { killQuietly } from '../processes/process-table.ts';
import type { ShellPipes } from '../processes/shell-pipes.ts';
import type { LaunchOrder, StartedProcess, TerminalSize } from '../processes/started-process.ts';
import { startTerminal } from '../processes/terminal.ts';
import type { Accounts } from './accounts.ts';
import { openCallersInput } from './callers-input.ts';
import { type Frame, FrameReader, frame } from './frames.ts';
import { launchOrder, type Order } from './sudo-request.ts';

export interface CallerParts {
  readonly accounts: Accounts;
  readonly pipes: ShellPipes;
  readonly env: NodeJS.ProcessEnv;
  readonly sandboxId: () => string;
}

/** Settles when the call is over. Never rejects. */
export async function serveCaller(socket: Socket, caller: User, parts: CallerParts): Promise<void> {
  socket.on('error', () => {});
  const frames = framesOf(socket);
  try {
    const { value: first } = await frames.next();
    if (first?.kind !== 'order') return;
    const order = JSON.parse(first.bytes.toString('utf8')) as Order;
    const call = await start(order, caller, parts);
    if (order.command.background) socket.end(frame('exit', '0'));
    else await Promise.all([takeFrames(frames, call), report(socket, call)]);
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    if (socket.writable) socket.end(frame('refused', why));
  } finally {
    socket.destroySoon();
  }
}

interface Call {
  readonly started: StartedProcess;
  readonly input: 'stdin' | 'pty';
  /** Whether the program has to read its own input and send it. */
  readonly isPassedOn: boolean;
  /** Tells the program that there is room for input. Set once there is a way to. */
  wantInput: () => void;
}

async function start(order: Order, caller: User, parts: CallerParts): Promise<Call> {
  const target = await parts.accounts.target(order.command);
  const launch = launchOrder({
    order,
    caller,
    target,
    agentEnv: parts.env,
    sandboxId: parts.sandboxId(),
  });
  const ready: LaunchOrder = {
    ...launch,
    cwd: await workingDirectory(launch.cwd, '/'),
    user: target.uid === 0 && target.gid === 0 ? undefined : target,
  };
  if (order.terminal !== null) {
    const started = await startTerminal(ready, order.terminal);
    return { started, input: 'pty', isPassedOn: true, wantInput: () => {} };
  }
  const input = await openCallersInput(order.pid);
  try {
    const started = await startPiped(ready, input?.fd ?? true, parts.pipes);
    return { started, input: 'stdin', isPassedOn: input === undefined, wantInput: () => {} };
  } catch (thrown) {
    throw thrown instanceof TorporError ? notStarted(thrown, ready.command) : thrown;
  } finally {
    await input?.close();
  }
}

function notStarted(thrown: TorporError, command: string): Error {
  const { code } = (thrown.cause ?? {}) as NodeJS.ErrnoException;
  return code === 'ENOENT' ? new Error(`${command}: command not found`) : thrown;
}

async function* framesOf(socket: Socket): AsyncGenerator<Frame> {
  const reader = new FrameReader();
  for await (const piece of socket) yield* reader.push(piece as Buffer);
}

/** Until the program goes away; when it does so first, the command hears of it as of a closed terminal. */
async function takeFrames(frames: AsyncGenerator<Frame>, call: Call): Promise<void> {
  const { started } = call;
  let isOver = false;
  void started.ended.then(() => {
    isOver = true;
  });
  try {
    for await (const { kind, bytes } of frames) take(call, kind, bytes);
  } catch {
    // Reset, or not a frame: it is gone either way.
  }
  if (!isOver) killQuietly(-started.pid, 'SIGHUP');
}

function take(call: Call, kind: Frame['kind'], bytes: Buffer): void {
  const { started, input } = call;
  try {
    if (kind === 'input') started.write(input, Buffer.from(bytes)).then(call.wantInput, () => {});
    if (kind === 'inputEnd' && input === 'stdin') started.closeStdin();
    if (kind === 'size') started.resize(JSON.parse(bytes.toString('utf8')) as TerminalSize);
    if (kind === 'signal') forwardSignal(started.pid, bytes.toString('utf8'));
  } catch {
    // A size that cannot be, an input that is closed already: nothing that should end a command.
  }
}

function forwardSignal(pid: number, name: string): void {
  if (Object.hasOwn(constants.signals, name)) killQuietly(-pid, name as NodeJS.Signals);
}

async function report(socket: Socket, call: Call): Promise<void> {
  const { started, isPassedOn } = call;
  call.wantInput = () => void (socket.writable && socket.write(frame('wantInput')));
  if (isPassedOn) call.wantInput();
  const closed = new AbortController();
  socket.once('close', () => closed.abort());
  const reader = started.output.attach();
  try {
    for (;;) {
      const chunk = await reader.next(closed.signal);
      if (chunk === undefined) break;
      const isRoomLeft = socket.write(frame(chunk.channel === 'stderr' ? 'stderr' : 'stdout', chunk.bytes));
      if (!isRoomLeft) await once(socket, 'drain', { signal: closed.signal });
    }
    socket.end(frame('exit', String((await started.ended).shellCode)));
  } catch {
    // The program went away; what it started is told by the other side.
  } finally {
    reader.detach();
  }
}
