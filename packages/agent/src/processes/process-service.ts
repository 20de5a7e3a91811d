/**
 * The RPCs on processes. A stream only shows a process: the process goes on when the stream ends, and others may
 * follow.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import type { HandlerContext, ServiceImpl } from '@connectrpc/connect';
import {
  type Process,
  type ProcessEvent,
  ProcessEventSchema,
  type ProcessInput,
  type ProcessSelector,
  Signal,
  type StartRequest,
} from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import type { Paths } from '../files/paths.ts';
import { keepaliveMs, withKeepalive } from '../http/keepalive.ts';
import type { SandboxIdentity } from '../identity/sandbox-identity.ts';
import { type Users, userOfAuthorization } from '../identity/users.ts';
import type { OutputChunk } from './output-ring.ts';
import { startPiped } from './piped-child.ts';
import { processEnvironment, workingDirectory } from './process-environment.ts';
import type { ProcessTable, ProcessSelector as Selection, TrackedProcess } from './process-table.ts';
import type { ShellPipes } from './shell-pipes.ts';
import type { LaunchSpec } from './started-process.ts';
import { startTerminal } from './terminal.ts';

const KEPT_OUTPUT_BYTES = 1024 * 1024;

export interface ProcessServiceParts {
  readonly table: ProcessTable;
  readonly users: Users;
  readonly identity: SandboxIdentity;
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly pipes: ShellPipes;
}

export function processService(parts: ProcessServiceParts): ServiceImpl<typeof Process> {
  const { table } = parts;
  return {
    list: () => ({ processes: describeAll(table) }),

    async *start(request, context) {
      const process = await start(parts, request, context);
      for await (const event of streamEvents(process, context)) yield { event };
    },

    async *connect(request, context) {
      const process = table.find(parseSelector(request.process));
      for await (const event of streamEvents(process, context)) yield { event };
    },

    update(request) {
      const { started } = table.findRunning(parseSelector(request.process));
      if (request.pty?.size !== undefined) started.resize(request.pty.size);
      return {};
    },

    async sendInput(request) {
      await send(table.findRunning(parseSelector(request.process)), request.input);
      return {};
    },

    async streamInput(requests) {
      let process: TrackedProcess | undefined;
      for await (const { event } of requests) {
        if (event.case === 'start') process = table.findRunning(parseSelector(event.value.process));
        if (event.case !== 'data') continue;
        if (process === undefined) {
          throw new TorporError('invalid_request', 'The first message must name the process.');
        }
        await send(process, event.value.input);
      }
      return {};
    },

    sendSignal(request) {
      const process = table.findRunning(parseSelector(request.process));
      table.signal(process, signalName(request.signal));
      return {};
    },

    closeStdin(request) {
      table.findRunning(parseSelector(request.process)).started.closeStdin();
      return {};
    },
  };
}

function start(
  parts: ProcessServiceParts,
  request: StartRequest,
  context: HandlerContext,
): Promise<TrackedProcess> {
  const user = userOfAuthorization(context.requestHeader.get('authorization'));
  return launch(parts, request, { user, timeoutMs: context.timeoutMs() });
}

/** Starts a process as the named user, or as the default user. */
export async function launch(
  { table, users, identity, paths, env, pipes }: ProcessServiceParts,
  request: Pick<StartRequest, 'process' | 'pty' | 'stdin' | 'tag'>,
  { user: name, timeoutMs }: { readonly user?: string | undefined; readonly timeoutMs?: number | undefined },
): Promise<TrackedProcess> {
  const config = request.process;
  if (!config?.cmd) throw new TorporError('invalid_request', 'The command is missing.');
  const user = await users.resolve(name, identity.defaultUser);
  const defaultDirectory = identity.defaultWorkdir ?? user.home;
  const requestedDirectory = config.cwd
    ? paths.absolute(config.cwd, { user, workdir: defaultDirectory })
    : undefined;
  const spec: LaunchSpec = {
    command: config.cmd,
    args: config.args,
    cwd: await workingDirectory(requestedDirectory, defaultDirectory),
    env: processEnvironment(user, identity, config.envs, env),
    user: users.isOtherThanAgent(user) ? user : undefined,
    keptBytes: KEPT_OUTPUT_BYTES,
  };
  const started = request.pty
    ? await startTerminal(spec, request.pty.size ?? { cols: 80, rows: 24 })
    : await startPiped(spec, request.stdin ?? true, pipes);
  const { cmd, args, envs, cwd } = config;
  return table.add(
    started,
    { cmd, args, envs, ...(cwd === undefined ? {} : { cwd }) },
    { tag: request.tag, timeoutMs },
  );
}

async function* streamEvents(process: TrackedProcess, context: HandlerContext): AsyncGenerator<ProcessEvent> {
  const reader = process.started.output.attach();
  // When a client stops reading and disconnects, this generator stays suspended at `yield`. Only the signal fires.
  context.signal.addEventListener('abort', () => reader.detach(), { once: true });
  try {
    const droppedBytes = BigInt(reader.missedBytes);
    yield processEvent({ case: 'start', value: { pid: process.started.pid, droppedBytes } });
    yield* withKeepalive(
      async () => {
        const chunk = await reader.next(context.signal);
        return chunk && dataEvent(chunk);
      },
      () => processEvent({ case: 'keepalive', value: {} }),
      keepaliveMs(context.requestHeader),
    );
    yield processEvent({ case: 'end', value: await process.started.ended });
  } finally {
    reader.detach();
  }
}

type EventInit = NonNullable<MessageInitShape<typeof ProcessEventSchema>['event']>;

function processEvent(event: EventInit): ProcessEvent {
  return create(ProcessEventSchema, { event });
}

function dataEvent({ channel, bytes }: OutputChunk): ProcessEvent {
  return processEvent({
    case: 'data',
    value: { output: { case: channel, value: bytes as Uint8Array<ArrayBuffer> } },
  });
}

export function describeAll(table: ProcessTable) {
  return table.list().map(describe);
}

export function describeSucceeded(table: ProcessTable) {
  return table.succeededServices().map(describe);
}

function describe({ config, tag, started }: TrackedProcess) {
  const { cmd, args, envs, cwd } = config;
  return {
    pid: started.pid,
    config: { cmd, args: [...args], envs: { ...envs }, ...(cwd === undefined ? {} : { cwd }) },
    ...(tag === undefined ? {} : { tag }),
  };
}

function parseSelector(selector: ProcessSelector | undefined): Selection {
  switch (selector?.selector.case) {
    case 'pid':
      return { pid: selector.selector.value };
    case 'tag':
      return { tag: selector.selector.value };
    default:
      throw new TorporError('invalid_request', 'Name the process by its pid or its tag.');
  }
}

async function send(process: TrackedProcess, input: ProcessInput | undefined): Promise<void> {
  if (input?.input.case === undefined) throw new TorporError('invalid_request', 'The input is missing.');
  try {
    await process.started.write(input.input.case, input.input.value);
  } catch (thrown) {
    // Clients ignore the error when the program has ended, but not when it only closed its input.
    if (await endsSoon(process))
      throw new TorporError('not_found', 'The process has ended.', { cause: thrown });
    throw thrown;
  }
}

/** When a program ends, its input closes a moment before its exit is reported. */
const EXIT_REPORT_MS = 200;

function endsSoon({ started }: TrackedProcess): Promise<boolean> {
  const enough = new AbortController();
  const tooLate = delay(EXIT_REPORT_MS, false, { signal: enough.signal }).catch(() => false);
  return Promise.race([started.ended.then(() => true), tooLate]).finally(() => enough.abort());
}

function signalName(signal: Signal): NodeJS.Signals {
  switch (signal) {
    case Signal.SIGTERM:
      return 'SIGTERM';
    case Signal.SIGKILL:
      return 'SIGKILL';
    default:
      throw new TorporError('invalid_request', 'The signal must be SIGTERM or SIGKILL.');
  }
}
