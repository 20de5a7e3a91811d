/**
 * One sandbox as an object.
 *
 * ```ts
 * import { Sandbox } from '@torpor/sdk';
 *
 * const sandbox = await Sandbox.create({ name: 'web' });
 * const { stdout } = await sandbox.exec('uname -a');
 * await sandbox.pause();                 // sealed: nothing can be lost from here on
 * await sandbox.exec('ls');              // wakes the sandbox
 * await sandbox.kill();
 * ```
 */
import type {
  CheckpointId,
  CheckpointView,
  CreateRequest,
  DriveView,
  EventView,
  ExecSocketRequest,
  ForkRequest,
  Network,
  OperationView,
  PauseRequest,
  PortView,
  ProcessView,
  ResumeRequest,
  Retention,
  SandboxHealth,
  SandboxId,
  SandboxState,
  SandboxView,
  SnapshotRequest,
} from '@torpor/protocol';
import { Torpor } from '../client.ts';
import { type ApiError, errorInside } from '../errors.ts';
import type { FollowOptions } from '../event-stream.ts';
import type { Command } from '../exec.ts';
import type { Files } from '../files.ts';
import { SandboxJobs } from '../jobs.ts';
import type { CallOptions, MutationOptions, ReadOptions } from '../json-calls.ts';
import type { OutputEvent, OutputOptions } from '../output.ts';
import { everyItem, type PageOptions } from '../pages.ts';
import type { PortRequest } from '../port-fetch.ts';
import type { ProcessSocket, SocketOptions, TerminalOptions } from '../process-socket.ts';
import type { PauseReply, ResumeReply, SandboxFilter } from '../sandboxes.ts';
import type { TransportOptions } from '../transport.ts';
import { Execution } from './execution.ts';
import { getOrCreate } from './get-or-create.ts';
import { PartialForkError } from './partial-fork-error.ts';
import { type ServiceView, servicesOf } from './services.ts';
import { waitFor } from './wait-for.ts';

/** An existing client, or the options of a new one. */
export interface ConnectOptions extends TransportOptions {
  readonly torpor?: Torpor | undefined;
}

export class Sandbox {
  readonly id: SandboxId;
  /** The files of the sandbox. */
  readonly files: Files;
  /** The services and background processes, each with an id: `list`, `get`, `end`. */
  readonly jobs: SandboxJobs;
  /** The client that this object uses. */
  readonly torpor: Torpor;
  #view: SandboxView;

  private constructor(torpor: Torpor, view: SandboxView) {
    this.torpor = torpor;
    this.id = view.id;
    this.#view = view;
    this.files = torpor.sandboxes.files(view.id);
    this.jobs = new SandboxJobs(torpor.jobs, view.id);
  }

  /**
   * Creates a sandbox; resolves when it runs and its services are ready. The request always has an idempotency key, so
   * that it can be repeated like a read and still creates one sandbox. No other mutation of this client is ever repeated.
   *
   * ```ts
   * const sandbox = await Sandbox.create({
   *   services: [{ name: 'app', command: 'npm run dev', port: 3000 }],
   *   idleSeconds: 60,
   * });
   * ```
   */
  static async create(
    request: CreateRequest = {},
    options: ConnectOptions & MutationOptions = {},
  ): Promise<Sandbox> {
    const torpor = clientOf(options);
    const { idempotencyKey, signal } = options;
    return new Sandbox(torpor, await torpor.sandboxes.create(request, { idempotencyKey, signal }));
  }

  /** An existing sandbox, by its id. This does not wake the sandbox; the first call that needs it running does. */
  static async connect(id: string, options: ConnectOptions & ReadOptions = {}): Promise<Sandbox> {
    const torpor = clientOf(options);
    const { signal, retries } = options;
    return new Sandbox(torpor, await torpor.sandboxes.get(id as SandboxId, { signal, retries }));
  }

  /**
   * Every sandbox that matches the filter. Pages are requested as they are needed.
   *
   * ```ts
   * for await (const sandbox of Sandbox.list({ state: 'paused', metadata: { app: 'web' } })) …
   * ```
   */
  static async *list(
    filter: SandboxFilter = {},
    options: ConnectOptions = {},
  ): AsyncGenerator<Sandbox, void> {
    const torpor = clientOf(options);
    for await (const view of torpor.sandboxes.list(filter)) yield new Sandbox(torpor, view);
  }

  /**
   * The existing sandbox of this name, awake or asleep, or a new one. Concurrent callers get the same sandbox. `request`
   * is used only for a new sandbox.
   *
   * ```ts
   * const sandbox = await Sandbox.getOrCreate(`user-${user.id}`, { idleSeconds: 600 });
   * ```
   */
  static async getOrCreate(
    name: string,
    request: Omit<CreateRequest, 'name'> = {},
    options: ConnectOptions & CallOptions = {},
  ): Promise<Sandbox> {
    const torpor = clientOf(options);
    return new Sandbox(torpor, await getOrCreate(torpor, name, request, options));
  }

  /** The sandbox as the server last described it; `refresh` asks again. */
  get view(): SandboxView {
    return this.#view;
  }

  get state(): SandboxState {
    return this.#view.state;
  }

  get name(): string | null {
    return this.#view.name;
  }

  get metadata(): Readonly<Record<string, string>> {
    return this.#view.metadata;
  }

  toJSON(): SandboxView {
    return this.#view;
  }

  /** The present state of the sandbox, with the evidence for it. */
  async refresh(options: ReadOptions = {}): Promise<SandboxView> {
    return this.#update(await this.torpor.sandboxes.get(this.id, options));
  }

  /** Whether the agent answers. Works in every state, within a few seconds, and never wakes the sandbox. */
  health(options: ReadOptions = {}): Promise<SandboxHealth> {
    return this.torpor.sandboxes.health(this.id, options);
  }

  /** The filesystems and their usage. Never wakes the sandbox: an error when it does not run. */
  drives(options: ReadOptions = {}): Promise<readonly DriveView[]> {
    return this.torpor.sandboxes.drives(this.id, options);
  }

  /** Pauses the sandbox. When the pause fails, the sandbox goes on running. */
  async pause(request: PauseRequest = {}, options: MutationOptions = {}): Promise<PauseReply> {
    const reply = await this.torpor.sandboxes.pause(this.id, request, options);
    this.#update(reply.sandbox);
    return reply;
  }

  /** Wakes the sandbox. `source` says what it was started from, `lost` what was not restored. Never repeated. */
  async resume(request: ResumeRequest = {}, options: MutationOptions = {}): Promise<ResumeReply> {
    const reply = await this.torpor.sandboxes.resume(this.id, request, options);
    this.#update(reply.sandbox);
    return reply;
  }

  /**
   * New sandboxes with the present files and memory of this one. When only some could be created, the
   * `PartialForkError` has them.
   *
   * ```ts
   * const forks = await sandbox.fork({ count: 10 });
   * ```
   */
  async fork(request: ForkRequest = {}, options: MutationOptions = {}): Promise<readonly Sandbox[]> {
    const { items } = await this.torpor.sandboxes.fork(this.id, request, options);
    const forks: Sandbox[] = [];
    const errors: ApiError[] = [];
    for (const item of items) {
      if ('sandbox' in item) forks.push(new Sandbox(this.torpor, item.sandbox));
      else errors.push(errorInside(null, item));
    }
    const [first, ...more] = errors;
    if (first === undefined) return forks;
    throw forks.length === 0 ? first : new PartialForkError(forks, [first, ...more]);
  }

  /** Seals a checkpoint; the sandbox goes on running. */
  snapshot(request: SnapshotRequest = {}, options: MutationOptions = {}): Promise<CheckpointView> {
    return this.torpor.sandboxes.snapshot(this.id, request, options);
  }

  /** Returns the sandbox to one of its checkpoints. The present state is sealed first. */
  async rollback(
    checkpoint: CheckpointId | CheckpointView,
    options: MutationOptions = {},
  ): Promise<ResumeReply> {
    const checkpointId = typeof checkpoint === 'string' ? checkpoint : checkpoint.id;
    const reply = await this.torpor.sandboxes.rollback(this.id, checkpointId, options);
    this.#update(reply.sandbox);
    return reply;
  }

  async kill(options: MutationOptions = {}): Promise<SandboxView> {
    return this.#update(await this.torpor.sandboxes.kill(this.id, options));
  }

  /** How long the sandbox is kept while paused and unused. null: for ever; "default": the organisation's setting. */
  async setRetention(
    deletePausedAfterSeconds: Retention,
    options: MutationOptions = {},
  ): Promise<SandboxView> {
    return this.#update(await this.torpor.sandboxes.setRetention(this.id, deletePausedAfterSeconds, options));
  }

  /** How long the sandbox may run, counted from now and from each resume; null removes the limit. */
  async setTimeout(seconds: number | null, options: MutationOptions = {}): Promise<SandboxView> {
    return this.#update(await this.torpor.sandboxes.setTimeout(this.id, seconds, options));
  }

  /** Replaces the network policy; pauses and forks keep it. */
  async setNetwork(network: Network, options: MutationOptions = {}): Promise<SandboxView> {
    return this.#update(await this.torpor.sandboxes.setNetwork(this.id, network, options));
  }

  /**
   * Runs a command in a login shell: await its result, or iterate over its output. A non-zero exit code is a result, not
   * an error. `signal` ends the command.
   */
  exec(command: Command, options: CallOptions = {}): Execution {
    const { sandboxes } = this.torpor;
    return new Execution({
      whole: () => sandboxes.exec(this.id, command, options),
      stream: () => sandboxes.execStream(this.id, command, options),
    });
  }

  /** Starts a command in the background; `output` reads its output. */
  async start(command: Command, options: CallOptions = {}): Promise<ProcessView> {
    return (await this.torpor.sandboxes.execInBackground(this.id, command, options)).process;
  }

  /** Runs a command with a stream as stdin, and its output as bytes. */
  open(command: string | ExecSocketRequest, options: SocketOptions = {}): Promise<ProcessSocket> {
    const request = typeof command === 'string' ? { command } : command;
    return this.torpor.sandboxes.execSocket(this.id, request, options);
  }

  /**
   * A terminal in the sandbox.
   *
   * ```ts
   * const terminal = await sandbox.shell({ cols: 120, rows: 40 });
   * await terminal.write(new TextEncoder().encode('htop\r'));
   * for await (const event of terminal) if (event.type === 'output') screen.write(event.bytes);
   * ```
   */
  shell(options: TerminalOptions = {}): Promise<ProcessSocket> {
    return this.torpor.sandboxes.terminal(this.id, options);
  }

  /** The services, background processes and running commands. Never wakes the sandbox. */
  processes(options: ReadOptions = {}): Promise<readonly ProcessView[]> {
    return this.torpor.sandboxes.processes(this.id, options);
  }

  /** The output of a service (by name) or a background process (by id). */
  output(process: string, options: OutputOptions = {}): AsyncGenerator<OutputEvent, void> {
    return this.torpor.sandboxes.output(this.id, process, options);
  }

  /** The declared services with their present status. Never wakes the sandbox. */
  async services(options: ReadOptions = {}): Promise<readonly ServiceView[]> {
    const [view, processes] = await Promise.all([this.refresh(options), this.processes(options)]);
    return servicesOf(view, processes);
  }

  /** The declared ports, and the ports on which programs listen. */
  ports(options: ReadOptions = {}): Promise<readonly PortView[]> {
    return this.torpor.sandboxes.ports(this.id, options);
  }

  /**
   * Sends a request to a port of the sandbox, and wakes the sandbox if it sleeps. Reads are repeated while it wakes; any
   * other request is sent once. Resolves whatever the status; `gatewayErrorOf` distinguishes an error of the gateway
   * from a response of the app.
   *
   * ```ts
   * const response = await sandbox.fetch(3000, '/api/items', { method: 'POST', body: JSON.stringify(item) });
   * ```
   */
  fetch(port: number, path: string, init: PortRequest = {}): Promise<Response> {
    return this.torpor.sandboxes.fetch(this.id, port, path, init);
  }

  /**
   * Every event after `after`, then every new event, each once and in order, also over broken connections. Ends when the
   * loop is left or the signal fires.
   */
  events(options: FollowOptions = {}): AsyncGenerator<EventView, void> {
    return this.torpor.sandboxes.events(this.id, options);
  }

  /** Newest first. `torpor.checkpoints` verifies and deletes them. */
  checkpoints(options: PageOptions = {}): AsyncGenerator<CheckpointView, void> {
    return everyItem((cursor = options.cursor) =>
      this.torpor.sandboxes.checkpoints(this.id, { ...options, cursor }),
    );
  }

  /** The operations of the sandbox with their progress and result, newest first. */
  operations(options: PageOptions = {}): AsyncGenerator<OperationView, void> {
    return this.torpor.operations.list({ ...options, sandboxId: this.id });
  }

  /**
   * Resolves when the sandbox is, or just was, in one of the states; throws when it can never be.
   *
   * ```ts
   * await sandbox.waitFor('paused', { signal: AbortSignal.timeout(60_000) });
   * ```
   */
  async waitFor(
    state: SandboxState | readonly SandboxState[],
    options: ReadOptions = {},
  ): Promise<SandboxView> {
    const wanted = typeof state === 'string' ? [state] : state;
    return this.#update(await waitFor(this.torpor, this.id, wanted, options));
  }

  #update(view: SandboxView): SandboxView {
    this.#view = view;
    return view;
  }
}

function clientOf({ torpor, ...options }: ConnectOptions): Torpor {
  return torpor ?? new Torpor(options);
}
