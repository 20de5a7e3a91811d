/**
 * File workers from the parent's side: one per user who is not the agent's own, started when first
 * needed and ended when idle. Requests are passed on as they come, bodies and answers streaming.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import type { Duplex } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { PIPE_FD, SESSION_WINDOW, STREAM_WINDOW, WORKDIR_HEADER } from './file-worker.ts';
import { answerFailure, type Request, type Response } from './http-answers.ts';
import type { OwnCommand } from './own-command.ts';
import type { FileContext } from './paths.ts';
import type { User } from './users.ts';

const IDLE_MS = 15 * 60_000;

interface Worker {
  readonly child: ChildProcess;
  readonly session: ClientHttp2Session;
  /** Requests under way. */
  open: number;
  /** Whether there was one since the last rest. */
  isUsed: boolean;
  idle?: NodeJS.Timeout;
}

export interface FileWorkersOptions {
  readonly command: OwnCommand;
  readonly stateDir: string;
  /** Makes a directory that this user may write into. */
  readonly prepare: (directory: string, user: User) => Promise<void>;
}

export class FileWorkers {
  private readonly workers = new Map<number, Promise<Worker>>();
  private readonly options: FileWorkersOptions;

  constructor(options: FileWorkersOptions) {
    this.options = options;
  }

  /** `body` is what was already read of the request. */
  async forward(request: Request, response: Response, context: FileContext, body?: Buffer): Promise<void> {
    const worker = await this.usableWorkerOf(context.user);
    const stream = worker.session.request(passedHeaders(request, context));
    this.busy(worker);
    stream.on('close', () => this.done(worker, context.user));
    stream.on('error', () => {
      if (response.writableEnded) return;
      answerFailure(response, new TorporError('internal', 'The file worker broke off.'));
    });
    passAnswer(stream, response);
    response.once('close', () => {
      // Answered early or given up: either way nobody wants the rest of the body.
      request.unpipe(stream);
      request.resume();
      stream.close(constants.NGHTTP2_CANCEL);
    });
    if (body !== undefined) stream.end(body);
    else request.pipe(stream);
  }

  /** Has the worker of this user up and answering before anybody waits for it. */
  async warmUp(user: User): Promise<void> {
    const { session } = await this.workerOf(user);
    await new Promise<void>((resolve, reject) => {
      session.ping((failure) => (failure ? reject(failure) : resolve()));
    });
  }

  /** Ends those that were of no use since the last rest: the memory of a sandbox is written down with them in it. */
  async rest(): Promise<void> {
    for (const [uid, starting] of [...this.workers]) {
      const worker = await starting.catch(() => undefined);
      if (worker === undefined) continue;
      if (worker.isUsed || worker.open > 0) worker.isUsed = false;
      else await this.end(uid, worker);
    }
  }

  close(): void {
    for (const starting of this.workers.values())
      void starting.then(({ child }) => child.kill('SIGKILL')).catch(() => {});
    this.workers.clear();
  }

  /** Its successor, when it was just being ended. */
  private async usableWorkerOf(user: User): Promise<Worker> {
    const worker = await this.workerOf(user);
    return worker.session.closed ? this.workerOf(user) : worker;
  }

  private workerOf(user: User): Promise<Worker> {
    const known = this.workers.get(user.uid);
    if (known !== undefined) return known;
    const starting = this.start(user);
    this.workers.set(user.uid, starting);
    // The end of this one must not make us forget its successor.
    const forget = () => this.workers.get(user.uid) === starting && this.workers.delete(user.uid);
    starting.then(({ child, session }) => {
      child.on('exit', forget);
      session.on('close', forget);
    }, forget);
    return starting;
  }

  private async start(user: User): Promise<Worker> {
    const stateDir = `${this.options.stateDir}/${user.uid}`;
    await this.options.prepare(stateDir, user);
    const { command, args } = this.options.command;
    const child = spawn(command, [...args, '--file-worker', JSON.stringify(user), '--state-dir', stateDir], {
      stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
      env: { PATH: process.env['PATH'] },
      cwd: '/',
    });
    const pipe = child.stdio[PIPE_FD] as Duplex;
    const session = connect('http://agent', {
      createConnection: () => pipe,
      settings: { initialWindowSize: STREAM_WINDOW },
    });
    session.on('connect', () => session.setLocalWindowSize(SESSION_WINDOW));
    // A worker that cannot start, or breaks, closes its session; requests on it are answered by that.
    for (const source of [child, session, pipe]) source.on('error', () => session.destroy());
    return { child, session, open: 0, isUsed: false };
  }

  private busy(worker: Worker): void {
    clearTimeout(worker.idle);
    worker.isUsed = true;
    worker.open += 1;
  }

  private done(worker: Worker, user: User): void {
    worker.open -= 1;
    if (worker.open > 0) return;
    worker.idle = setTimeout(() => void this.end(user.uid, worker), IDLE_MS).unref();
  }

  private async end(uid: number, { child, session }: Worker): Promise<void> {
    // Forgotten before it goes, so that nobody is sent to it any more.
    this.workers.delete(uid);
    const ended = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined;
    session.close(() => child.kill());
    await ended;
  }
}

const NOT_PASSED = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'te',
  'host',
  'expect',
  // Settled by the agent; the worker needs no secrets.
  'authorization',
  'x-access-token',
  WORKDIR_HEADER,
]);

function passedHeaders(request: Request, { workdir }: FileContext): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = {
    ':method': request.method ?? 'GET',
    ':path': request.url ?? '/',
  };
  for (const [name, value] of Object.entries(request.headers)) {
    if (!NOT_PASSED.has(name) && !name.startsWith(':') && value !== undefined) headers[name] = value;
  }
  if (workdir !== undefined) headers[WORKDIR_HEADER] = encodeURIComponent(workdir);
  return headers;
}

function passAnswer(stream: ClientHttp2Stream, response: Response): void {
  stream.on('response', (headers) => {
    for (const [name, value] of Object.entries(headers)) {
      if (!name.startsWith(':') && value !== undefined) response.setHeader(name, value);
    }
    response.writeHead(Number(headers[constants.HTTP2_HEADER_STATUS] ?? 502));
    response.flushHeaders();
    stream.pipe(response, { end: false });
  });
  // A worker that stopped in the middle of an answer must not make it look complete.
  stream.on('end', () => (stream.rstCode ? response.destroy() : response.end()));
  stream.on('close', () => response.writableEnded || response.destroy());
}
