/** The calls of the API about sandboxes, one method each. */
import {
  type BackgroundReply,
  type CheckpointId,
  type CheckpointPage,
  type CheckpointView,
  type CreateRequest,
  checkpointPageSchema,
  checkpointViewSchema,
  type DriveView,
  driveViewSchema,
  type EventView,
  type ExecReply,
  type ExecSocketRequest,
  type ForkReply,
  type ForkRequest,
  forkReplySchema,
  type Network,
  type PauseRequest,
  type PortView,
  type PreviewLink,
  type PreviewLinkRequest,
  type ProcessView,
  pageSchema,
  pauseReplySchema,
  portViewSchema,
  previewLinkSchema,
  processViewSchema,
  type ResumeRequest,
  type Retention,
  resumeReplySchema,
  type SandboxHealth,
  type SandboxId,
  type SandboxMetrics,
  type SandboxState,
  type SandboxView,
  type SnapshotRequest,
  sandboxHealthSchema,
  sandboxMetricsSchema,
  sandboxViewSchema,
} from '@torpor/protocol';
import { type FollowOptions, followEvents } from './event-stream.ts';
import { type Command, type ExecEvent, exec, execInBackground, execStream } from './exec.ts';
import { Files } from './files.ts';
import type { CallOptions, JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { type OutputEvent, type OutputOptions, readOutput } from './output.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { fetchPort, type PortRequest } from './port-fetch.ts';
import {
  openExec,
  openTerminal,
  type ProcessSocket,
  type SocketOptions,
  type TerminalOptions,
} from './process-socket.ts';
import { validated } from './validate.ts';

export interface SandboxFilter extends PageOptions {
  readonly state?: SandboxState | readonly SandboxState[] | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** Matches sandboxes that have ended too, unless `state` restricts it. */
  readonly name?: string | undefined;
}

export type PauseReply = ReturnType<typeof pauseReplySchema.parse>;
export type ResumeReply = ReturnType<typeof resumeReplySchema.parse>;

const sandboxPage = pageSchema(sandboxViewSchema);
const processPage = pageSchema(processViewSchema);
const portPage = pageSchema(portViewSchema);
const drivePage = pageSchema(driveViewSchema);

export class Sandboxes {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  files(id: SandboxId): Files {
    return new Files(this.#calls, id);
  }

  /** The only mutation that is repeated like a read: its idempotency key makes sure that one sandbox is created. */
  create(request: CreateRequest = {}, options: MutationOptions = {}): Promise<SandboxView> {
    const idempotencyKey = options.idempotencyKey ?? this.#calls.transport.newIdempotencyKey();
    const keyed = { ...options, idempotencyKey, repeatUnderKey: true };
    return this.#calls.post('/v1/sandboxes', sandboxViewSchema, request, keyed);
  }

  get(id: SandboxId, options: ReadOptions = {}): Promise<SandboxView> {
    return this.#calls.get(pathOf(id), sandboxViewSchema, options);
  }

  /** Whether the agent answers. Works in every state, within a few seconds, and never wakes the sandbox. */
  health(id: SandboxId, options: ReadOptions = {}): Promise<SandboxHealth> {
    return this.#calls.get(pathOf(id, 'health'), sandboxHealthSchema, options);
  }

  /** What a running sandbox uses now. Never wakes the sandbox: an error when it does not run. */
  metrics(id: SandboxId, options: ReadOptions = {}): Promise<SandboxMetrics> {
    return this.#calls.get(pathOf(id, 'metrics'), sandboxMetricsSchema, options);
  }

  /** The filesystems and their usage. Never wakes the sandbox: an error when it does not run. */
  async drives(id: SandboxId, options: ReadOptions = {}): Promise<readonly DriveView[]> {
    return (await this.#calls.get(pathOf(id, 'drives'), drivePage, options)).items;
  }

  page(filter: SandboxFilter = {}): Promise<Page<SandboxView>> {
    const { state, metadata = {}, name, limit, cursor, ...options } = filter;
    const states = typeof state === 'string' ? state : state?.join(',');
    const wanted = Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value]);
    const query = { state: states, name, ...Object.fromEntries(wanted), limit, cursor };
    return this.#calls.get('/v1/sandboxes', sandboxPage, { query, ...options });
  }

  list(filter: SandboxFilter = {}): AsyncGenerator<SandboxView, void> {
    return everyItem((cursor = filter.cursor) => this.page({ ...filter, cursor }));
  }

  pause(id: SandboxId, request: PauseRequest = {}, options: MutationOptions = {}): Promise<PauseReply> {
    return this.#calls.post(pathOf(id, 'pause'), pauseReplySchema, request, options);
  }

  resume(id: SandboxId, request: ResumeRequest = {}, options: MutationOptions = {}): Promise<ResumeReply> {
    return this.#calls.post(pathOf(id, 'resume'), resumeReplySchema, request, options);
  }

  /** One item per fork: a sandbox or an error. */
  fork(id: SandboxId, request: ForkRequest = {}, options: MutationOptions = {}): Promise<ForkReply> {
    return this.#calls.post(pathOf(id, 'fork'), forkReplySchema, request, options);
  }

  snapshot(
    id: SandboxId,
    request: SnapshotRequest = {},
    options: MutationOptions = {},
  ): Promise<CheckpointView> {
    return this.#calls.post(pathOf(id, 'checkpoints'), checkpointViewSchema, request, options);
  }

  checkpoints(id: SandboxId, { limit, cursor, ...options }: PageOptions = {}): Promise<CheckpointPage> {
    return this.#calls.get(pathOf(id, 'checkpoints'), checkpointPageSchema, {
      query: { limit, cursor },
      ...options,
    });
  }

  rollback(id: SandboxId, checkpointId: CheckpointId, options: MutationOptions = {}): Promise<ResumeReply> {
    return this.#calls.post(pathOf(id, 'rollback'), resumeReplySchema, { checkpointId }, options);
  }

  /** Counted from now; null removes the limit. */
  setTimeout(
    id: SandboxId,
    timeoutSeconds: number | null,
    options: MutationOptions = {},
  ): Promise<SandboxView> {
    return this.#calls.post(pathOf(id, 'timeout'), sandboxViewSchema, { timeoutSeconds }, options);
  }

  /** How long the sandbox is kept while paused and unused. null: for ever; "default": the organisation's setting. */
  setRetention(
    id: SandboxId,
    deletePausedAfterSeconds: Retention,
    options: MutationOptions = {},
  ): Promise<SandboxView> {
    return this.#calls.post(
      pathOf(id, 'retention'),
      sandboxViewSchema,
      { deletePausedAfterSeconds },
      options,
    );
  }

  /** Replaces the network policy of the sandbox. */
  setNetwork(id: SandboxId, network: Network, options: MutationOptions = {}): Promise<SandboxView> {
    return this.#calls.post(pathOf(id, 'network'), sandboxViewSchema, network, options);
  }

  async kill(id: SandboxId, options: MutationOptions = {}): Promise<SandboxView> {
    return validated(await this.#calls.delete(pathOf(id), options), sandboxViewSchema);
  }

  /** Runs a command and resolves at its end. */
  exec(id: SandboxId, command: Command, options: CallOptions = {}): Promise<ExecReply> {
    return exec(this.#calls, pathOf(id, 'exec'), command, options);
  }

  /** Runs a command and streams its output as text. */
  execStream(id: SandboxId, command: Command, options: CallOptions = {}): AsyncGenerator<ExecEvent, void> {
    return execStream(this.#calls, pathOf(id, 'exec'), command, options);
  }

  execInBackground(id: SandboxId, command: Command, options: CallOptions = {}): Promise<BackgroundReply> {
    return execInBackground(this.#calls, pathOf(id, 'exec'), command, options);
  }

  /** Runs a command with a stream as stdin, and its output as bytes. */
  execSocket(id: SandboxId, request: ExecSocketRequest, options: SocketOptions = {}): Promise<ProcessSocket> {
    return openExec(this.#calls.transport, id, request, options);
  }

  terminal(id: SandboxId, options: TerminalOptions = {}): Promise<ProcessSocket> {
    return openTerminal(this.#calls.transport, id, options);
  }

  async processes(id: SandboxId, options: ReadOptions = {}): Promise<readonly ProcessView[]> {
    return (await this.#calls.get(pathOf(id, 'processes'), processPage, options)).items;
  }

  /** The output of a service or background process so far, and with `follow` also its new output. */
  output(id: SandboxId, process: string, options: OutputOptions = {}): AsyncGenerator<OutputEvent, void> {
    return readOutput(this.#calls, pathOf(id, `processes/${encodeURIComponent(process)}/output`), options);
  }

  /** The declared ports, and the ports on which programs listen. */
  async ports(id: SandboxId, options: ReadOptions = {}): Promise<readonly PortView[]> {
    return (await this.#calls.get(pathOf(id, 'ports'), portPage, options)).items;
  }

  /** A link with which a browser without a key can open a port. For a private preview it works once. */
  previewLink(
    id: SandboxId,
    request: PreviewLinkRequest,
    options: MutationOptions = {},
  ): Promise<PreviewLink> {
    return this.#calls.post(pathOf(id, 'preview-links'), previewLinkSchema, request, options);
  }

  /** Every event after `after`, then every new event as it happens. Ends when the loop is left or the signal fires. */
  events(id: SandboxId, options: FollowOptions = {}): AsyncGenerator<EventView, void> {
    return followEvents(this.#calls.transport, pathOf(id, 'events'), ({ seq }) => seq, options);
  }

  /** Sends a request to a port of the sandbox; reads are repeated while the sandbox wakes. */
  fetch(id: SandboxId, port: number, path: string, request: PortRequest = {}): Promise<Response> {
    return fetchPort(this.#calls.transport, id, port, path, request);
  }
}

function pathOf(id: SandboxId, rest?: string): string {
  const sandbox = `/v1/sandboxes/${encodeURIComponent(id)}`;
  return rest === undefined ? sandbox : `${sandbox}/${rest}`;
}
