/** The agent's side of one call of `sudo`: starts the command and connects it to the calling program. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { TorporError } from '@torpor/protocol';
import type { User } from '../identity/users.ts';
import type { OutputReader } from '../processes/output-ring.ts';
import { startPiped } from '../processes/piped-child.ts';
import { workingDirectory } from '../processes/process-environment.ts';
import { killQuietly } from '../processes/process-table.ts';
import type { ShellPipes } from '../processes/shell-pipes.ts';
import type { LaunchSpec, StartedProcess } from '../processes/started-process.ts';
import { startTerminal } from '../processes/terminal.ts';
import type { Accounts } from './accounts.ts';
import { openCallersInput } from './callers-input.ts';
import { type Frame, FrameReader, frame } from './frames.ts';
import { isTerminalSize, launchSpec, parseSudoRequest, type SudoRequest } from './sudo-request.ts';

export interface CallerOptions {
  readonly accounts: Accounts;
  readonly pipes: Pick<ShellPipes, 'take'>;
  readonly env: NodeJS.ProcessEnv;
  readonly sandboxId: () => string;
}

/** Resolves when the call is over. Never rejects. */
export async function serveCaller(socket: Socket, caller: User, parts: CallerOptions): Promise<void> {
  socket.on('error', () => {});
  const frames = readFrames(socket);
  try {
    const { value: first } = await frames.next();
    if (first?.kind !== 'request') return;
    const request = parseSudoRequest(first.bytes.toString('utf8'));
    const call = await start(request, caller, parts);
    if (request.command.background) {
      call.output.detach();
      socket.end(frame('exit', '0'));
    } else await Promise.all([handleFrames(frames, call), sendOutput(socket, call)]);
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    if (socket.writable) socket.end(frame('refused', why));
  } finally {
    socket.destroySoon();
  }
}

interface Call {
  readonly started: StartedProcess;
  /** Attached as soon as the command runs: without a reader, output beyond `KEPT_BYTES` is dropped. */
  readonly output: OutputReader;
  readonly input: 'stdin' | 'pty';
  /** Whether the `sudo` program reads its input and sends it over the socket. */
  readonly isForwarded: boolean;
  /** Asks the program for more input. Set once output is connected. */
  requestInput: () => void;
}

async function start(request: SudoRequest, caller: User, parts: CallerOptions): Promise<Call> {
  const target = await parts.accounts.target(request.command);
  const launch = launchSpec({
    request,
    caller,
    target,
    agentEnv: parts.env,
    sandboxId: parts.sandboxId(),
  });
  const ready: LaunchSpec = {
    ...launch,
    cwd: await workingDirectory(launch.cwd, '/'),
    user: target.uid === 0 && target.gid === 0 ? undefined : target,
  };
  if (request.terminal !== null) {
    const started = await startTerminal(ready, request.terminal);
    return callOf(started, 'pty', true);
  }
  const input = await openCallersInput(request.pid);
  try {
    const started = await startPiped(ready, input?.fd ?? true, parts.pipes);
    return callOf(started, 'stdin', input === undefined);
  } catch (thrown) {
    throw thrown instanceof TorporError ? notStarted(thrown, ready.command) : thrown;
  } finally {
    await input?.close();
  }
}

function callOf(started: StartedProcess, input: Call['input'], isForwarded: boolean): Call {
  return { started, output: started.output.attach(), input, isForwarded, requestInput: () => {} };
}

function notStarted(thrown: TorporError, command: string): Error {
  const { code } = (thrown.cause ?? {}) as NodeJS.ErrnoException;
  return code === 'ENOENT' ? new Error(`${command}: command not found`) : thrown;
}

async function* readFrames(socket: Socket): AsyncGenerator<Frame> {
  const reader = new FrameReader();
  for await (const piece of socket) yield* reader.push(piece as Buffer);
}

/** Handles frames until the program disconnects. When the command still runs then, it gets SIGHUP. */
async function handleFrames(frames: AsyncGenerator<Frame>, call: Call): Promise<void> {
  const { started } = call;
  let isOver = false;
  void started.ended.then(() => {
    isOver = true;
  });
  try {
    for await (const { kind, bytes } of frames) handleFrame(call, kind, bytes);
  } catch {
    // The connection was reset, or sent something that is no frame: the call is over either way.
  }
  if (!isOver) killQuietly(-started.pid, 'SIGHUP');
}

function handleFrame(call: Call, kind: Frame['kind'], bytes: Buffer): void {
  const { started, input } = call;
  try {
    if (kind === 'input') started.write(input, Buffer.from(bytes)).then(call.requestInput, () => {});
    if (kind === 'inputEnd' && input === 'stdin') started.closeStdin();
    if (kind === 'size') resize(started, JSON.parse(bytes.toString('utf8')));
    if (kind === 'signal') forwardSignal(started.pid, bytes.toString('utf8'));
  } catch {
    // An invalid terminal size or an already closed input must not end the command.
  }
}

function resize(started: StartedProcess, size: unknown): void {
  if (isTerminalSize(size)) started.resize(size);
}

function forwardSignal(pid: number, name: string): void {
  if (Object.hasOwn(constants.signals, name)) killQuietly(-pid, name as NodeJS.Signals);
}

async function sendOutput(socket: Socket, call: Call): Promise<void> {
  const { started, output, isForwarded: isPassedOn } = call;
  call.requestInput = () => void (socket.writable && socket.write(frame('wantInput')));
  if (isPassedOn) call.requestInput();
  const closed = new AbortController();
  socket.once('close', () => closed.abort());
  try {
    for (;;) {
      const chunk = await output.next(closed.signal);
      if (chunk === undefined) break;
      const isRoomLeft = socket.write(frame(chunk.channel === 'stderr' ? 'stderr' : 'stdout', chunk.bytes));
      if (!isRoomLeft) await once(socket, 'drain', { signal: closed.signal });
    }
    socket.end(frame('exit', String((await started.ended).shellCode)));
  } catch {
    // The program has disconnected; `handleFrames` signals the command.
  } finally {
    output.detach();
  }
}
