/**
 * A sandbox as a program holds it.
 *
 * ```ts
 * import { Sandbox } from '@torpor/sdk';
 *
 * const sandbox = await Sandbox.create({ name: 'web' });
 * const { stdout } = await sandbox.exec('uname -a');
 * await sandbox.pause();                 // sealed: from here on nothing can be lost
 * await sandbox.exec('ls');              // wakes it
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

/** Which server, and as whom: a client that is there already, or what one is made from. */
export interface ConnectOptions extends TransportOptions {
  readonly torpor?: Torpor | undefined;
}

export class Sandbox {
  readonly id: SandboxId;
  /** Files go in and out as bytes. */
  readonly files: Files;
  /** Its services and background processes, each with an id: `list`, `get`, `end`. */
  readonly jobs: SandboxJobs;
  /** The client that this sandbox is reached by. */
  readonly torpor: Torpor;
  private last: SandboxView;

  private constructor(torpor: Torpor, view: SandboxView) {
    this.torpor = torpor;
    this.id = view.id;
    this.last = view;
    this.files = torpor.sandboxes.files(view.id);
    this.jobs = new SandboxJobs(torpor.jobs, view.id);
  }

  /**
   * A new sandbox that runs, with its services ready. Always under an idempotency key, so that it is sent again as
   * a read is, and there is one sandbox. No other mutation of this client is ever sent twice.
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

  /** One that is there, by its id. This does not wake it; the first thing that is asked of its inside does. */
  static async connect(id: string, options: ConnectOptions & ReadOptions = {}): Promise<Sandbox> {
    const torpor = clientOf(options);
    const { signal, retries } = options;
    return new Sandbox(torpor, await torpor.sandboxes.get(id as SandboxId, { signal, retries }));
  }

  /**
   * Every sandbox that the filter leaves, page after page as they are wanted.
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
   * The living sandbox of this name, awake or asleep, or a new one. Callers that come at once get the same
   * one. `request` counts when it is made, and changes nothing about one that is there.
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

  /** What was last heard of it; `refresh` asks again. */
  get view(): SandboxView {
    return this.last;
  }

  get state(): SandboxState {
    return this.last.state;
  }

  get name(): string | null {
    return this.last.name;
  }

  get metadata(): Readonly<Record<string, string>> {
    return this.last.metadata;
  }

  toJSON(): SandboxView {
    return this.last;
  }

  /** How it is now, and how that is known. */
  async refresh(options: ReadOptions = {}): Promise<SandboxView> {
    return this.heard(await this.torpor.sandboxes.get(this.id, options));
  }

  /** Whether its agent answers, in every state and within a few seconds. Never wakes it. */
  health(options: ReadOptions = {}): Promise<SandboxHealth> {
    return this.torpor.sandboxes.health(this.id, options);
  }

  /** Its filesystems and how full they are. Never wakes it: of one that does not run it is an error. */
  drives(options: ReadOptions = {}): Promise<readonly DriveView[]> {
    return this.torpor.sandboxes.drives(this.id, options);
  }

  /** Puts it to sleep. When that fails it goes on running. */
  async pause(request: PauseRequest = {}, options: MutationOptions = {}): Promise<PauseReply> {
    const reply = await this.torpor.sandboxes.pause(this.id, request, options);
    this.heard(reply.sandbox);
    return reply;
  }

  /** Wakes it. `source` says what it came back from, `lost` what did not. Never sent twice. */
  async resume(request: ResumeRequest = {}, options: MutationOptions = {}): Promise<ResumeReply> {
    const reply = await this.torpor.sandboxes.resume(this.id, request, options);
    this.heard(reply.sandbox);
    return reply;
  }

  /**
   * New sandboxes from what this one is at this moment. When only some could be made, the `PartialForkError`
   * has those.
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

  /** Seals a checkpoint of it as it is; it goes on as it was. */
  snapshot(request: SnapshotRequest = {}, options: MutationOptions = {}): Promise<CheckpointView> {
    return this.torpor.sandboxes.snapshot(this.id, request, options);
  }

  /** Back to one of its checkpoints, in place. What it is now is sealed first. */
  async rollback(
    checkpoint: CheckpointId | CheckpointView,
    options: MutationOptions = {},
  ): Promise<ResumeReply> {
    const checkpointId = typeof checkpoint === 'string' ? checkpoint : checkpoint.id;
    const reply = await this.torpor.sandboxes.rollback(this.id, checkpointId, options);
    this.heard(reply.sandbox);
    return reply;
  }

  async kill(options: MutationOptions = {}): Promise<SandboxView> {
    return this.heard(await this.torpor.sandboxes.kill(this.id, options));
  }

  /** How long it may run, from now and from each resume on; null takes the limit away. */
  /** How long it is kept while it is paused and nobody uses it. */
  async setRetention(
    deletePausedAfterSeconds: Retention,
    options: MutationOptions = {},
  ): Promise<SandboxView> {
    return this.heard(await this.torpor.sandboxes.setRetention(this.id, deletePausedAfterSeconds, options));
  }

  async setTimeout(seconds: number | null, options: MutationOptions = {}): Promise<SandboxView> {
    return this.heard(await this.torpor.sandboxes.setTimeout(this.id, seconds, options));
  }

  /** What it may reach from now on, in place of what was set before; pauses and forks keep it. */
  async setNetwork(network: Network, options: MutationOptions = {}): Promise<SandboxView> {
    return this.heard(await this.torpor.sandboxes.setNetwork(this.id, network, options));
  }

  /**
   * Runs a command by a login shell: await how it ended, or iterate its output as it comes. An exit code that
   * is not 0 is an answer, not an error. `signal` ends the command.
   */
  exec(command: Command, options: CallOptions = {}): Execution {
    const { sandboxes } = this.torpor;
    return new Execution({
      whole: () => sandboxes.exec(this.id, command, options),
      stream: () => sandboxes.execStream(this.id, command, options),
    });
  }

  /** Starts a command and leaves it running; `output` reads what it says. */
  async start(command: Command, options: CallOptions = {}): Promise<ProcessView> {
    return (await this.torpor.sandboxes.execInBackground(this.id, command, options)).process;
  }

  /** A command with a stream for its stdin, and its output byte for byte. */
  open(command: string | ExecSocketRequest, options: SocketOptions = {}): Promise<ProcessSocket> {
    const request = typeof command === 'string' ? { command } : command;
    return this.torpor.sandboxes.execSocket(this.id, request, options);
  }

  /**
   * A real terminal in it.
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

  /** Services, processes in the background and commands under way. Never wakes it. */
  processes(options: ReadOptions = {}): Promise<readonly ProcessView[]> {
    return this.torpor.sandboxes.processes(this.id, options);
  }

  /** What a service (by its name) or a process in the background (by its id) has said. */
  output(process: string, options: OutputOptions = {}): AsyncGenerator<OutputEvent, void> {
    return this.torpor.sandboxes.output(this.id, process, options);
  }

  /** Its declared services as they are now. Never wakes it. */
  async services(options: ReadOptions = {}): Promise<readonly ServiceView[]> {
    const [view, processes] = await Promise.all([this.refresh(options), this.processes(options)]);
    return servicesOf(view, processes);
  }

  /** The ports it declares, and those it listens on. */
  ports(options: ReadOptions = {}): Promise<readonly PortView[]> {
    return this.torpor.sandboxes.ports(this.id, options);
  }

  /**
   * A request to a server inside it, which wakes it. Reads are tried again while it wakes; anything else is
   * sent once. The answer is returned whatever its status; `gatewayErrorOf` tells a refusal of the gateway from an
   * answer of the app.
   *
   * ```ts
   * const response = await sandbox.fetch(3000, '/api/items', { method: 'POST', body: JSON.stringify(item) });
   * ```
   */
  fetch(port: number, path: string, init: PortRequest = {}): Promise<Response> {
    return this.torpor.sandboxes.fetch(this.id, port, path, init);
  }

  /**
   * Everything that happened to it after `after`, then everything that happens, each once and in order, also
   * over broken connections. It ends when the loop is left or the signal fires.
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

  /** What was asked of it, how far that came and how it ended; newest first. */
  operations(options: PageOptions = {}): AsyncGenerator<OperationView, void> {
    return this.torpor.operations.list({ ...options, sandboxId: this.id });
  }

  /**
   * Resolves when it is in the state, or one of them, or has just been; throws when it never will be.
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
    return this.heard(await waitFor(this.torpor, this.id, wanted, options));
  }

  private heard(view: SandboxView): SandboxView {
    this.last = view;
    return view;
  }
}

function clientOf({ torpor, ...options }: ConnectOptions): Torpor {
  return torpor ?? new Torpor(options);
}
