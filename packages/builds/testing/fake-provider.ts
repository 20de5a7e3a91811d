/**
 * A fake provider of sandboxes: it records every call with its time, and fails on demand. Like some real providers, it
 * sets the lifetime of a sandbox to five minutes on every connect.
 */

import { randomBytes } from 'node:crypto';
import type { Clock } from '@torpor/engine';
import {
  type CheckpointId,
  type JobId,
  makeId,
  type SandboxId,
  type SandboxState,
  type Service,
  TorporError,
} from '@torpor/protocol';
import type {
  BuildCapabilities,
  BuildSandboxes,
  NewSandbox,
  PreviewResponse,
  SandboxCommand,
  SandboxSummary,
} from '../src/ports/sandboxes.ts';
import type { GeneratedFile } from '../src/runners/generated-files.ts';

export interface FakeSandbox {
  readonly id: SandboxId;
  readonly org: string;
  readonly jobId: JobId;
  state: SandboxState;
  files: Map<string, string>;
  lifetimeSeconds: number;
  endsAt: number;
  checkpointId: CheckpointId | null;
  services: Service[];
  processes: Map<number, string>;
  /** Whether the dev server still runs after a connect, because memory was kept. */
  keepsMemory: boolean;
  /** Known damage of a paused sandbox's checkpoint. */
  damage: { readonly sure: boolean; readonly reason: string } | null;
}

export interface Call {
  readonly call: keyof BuildSandboxes;
  readonly id: SandboxId | undefined;
  readonly at: number;
  readonly detail?: unknown;
}

/** Runs before a call, which fails when this throws. */
export type FakeFault = (sandbox: FakeSandbox | undefined) => void | Promise<void>;

const CONNECTED_SECONDS = 300;
const FIRST_PID = 100;

export class FakeProvider implements BuildSandboxes {
  readonly sandboxes = new Map<SandboxId, FakeSandbox>();
  readonly calls: Call[] = [];
  /** Whether sandboxes may move to another node. */
  moving = false;
  /** Capabilities of the runtime. */
  can: BuildCapabilities = { pause: 'memory', fork: true };
  /** The domain of preview URLs, which tests change. */
  host = 'preview.test';
  /** The application's answer, by the time since its start. */
  answer: (sandbox: FakeSandbox, sinceStartMs: number) => PreviewResponse = () => ({
    status: 200,
    headers: {},
  });
  /** Returns the exit code of a command; may write its output. */
  command: (order: SandboxCommand) => number = () => 0;
  /** The files that `read` returns: those of a runner's program. */
  workspace: readonly GeneratedFile[] = [];
  readonly #clock: Clock;
  readonly #faults = new Map<keyof BuildSandboxes, FakeFault[]>();
  readonly #startedAt = new Map<SandboxId, number>();
  #nextPid = FIRST_PID;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Applies these faults to the next calls of this kind, in order. Later calls succeed. */
  fail(call: keyof BuildSandboxes, ...faults: FakeFault[]): void {
    this.#faults.set(call, [...(this.#faults.get(call) ?? []), ...faults]);
  }

  /** Running and paused sandboxes. */
  get live(): FakeSandbox[] {
    return [...this.sandboxes.values()].filter(({ state }) => state === 'running' || state === 'paused');
  }

  named(...names: (keyof BuildSandboxes)[]): Call[] {
    return this.calls.filter(({ call }) => names.includes(call));
  }

  async capabilities(): Promise<BuildCapabilities> {
    return this.can;
  }

  async create({ org, jobId, lifetimeSeconds, from }: NewSandbox, signal: AbortSignal): Promise<SandboxId> {
    const id = makeId('sbx', randomBytes);
    await this.#note('create', id, lifetimeSeconds);
    signal.throwIfAborted();
    if (from !== undefined && !this.can.fork) throw unsupported('fork');
    const source = from === undefined ? undefined : this.sandboxes.get(from);
    this.sandboxes.set(id, {
      id,
      org,
      jobId,
      state: 'running',
      files: new Map(source?.files),
      lifetimeSeconds,
      endsAt: this.#clock.now() + lifetimeSeconds * 1_000,
      checkpointId: null,
      services: [],
      processes: new Map(),
      keepsMemory: false,
      damage: null,
    });
    return id;
  }

  async ofJob(org: string, jobId: JobId): Promise<SandboxId[]> {
    await this.#note('ofJob', undefined);
    return this.live.filter((one) => one.org === org && one.jobId === jobId).map(({ id }) => id);
  }

  async write(_: string, id: SandboxId, directory: string, files: readonly GeneratedFile[]): Promise<void> {
    const sandbox = await this.#running('write', id);
    for (const { path, content } of files) {
      sandbox.files.set(`${directory}/${path}`, Buffer.from(content).toString('utf8'));
    }
  }

  async remove(_: string, id: SandboxId, directory: string, paths: readonly string[]): Promise<void> {
    const sandbox = await this.#running('remove', id);
    for (const path of paths) sandbox.files.delete(`${directory}/${path}`);
  }

  async read(_: string, id: SandboxId): Promise<GeneratedFile[]> {
    await this.#running('read', id);
    return [...this.workspace];
  }

  async run(_: string, id: SandboxId, order: SandboxCommand): Promise<{ exitCode: number }> {
    await this.#running('run', id, order.command);
    return { exitCode: this.command(order) };
  }

  async publish(
    order: Omit<NewSandbox, 'from'>,
    id: SandboxId,
    service: Service,
    signal: AbortSignal,
  ): Promise<SandboxId> {
    const buildSandbox = await this.#running('publish', id, service);
    signal.throwIfAborted();
    buildSandbox.services = [service];
    this.#begin(buildSandbox);
    buildSandbox.endsAt = this.#clock.now() + order.lifetimeSeconds * 1_000;
    return id;
  }

  async connect(_: string, id: SandboxId): Promise<void> {
    await this.#note('connect', id);
    const sandbox = this.#get(id);
    if (sandbox.state === 'paused' && !sandbox.keepsMemory) this.#startedAt.delete(id);
    sandbox.state = 'running';
    sandbox.lifetimeSeconds = CONNECTED_SECONDS;
    sandbox.endsAt = this.#clock.now() + CONNECTED_SECONDS * 1_000;
  }

  async setLifetime(_: string, id: SandboxId, seconds: number): Promise<void> {
    const sandbox = await this.#running('setLifetime', id, seconds);
    sandbox.lifetimeSeconds = seconds;
    sandbox.endsAt = this.#clock.now() + seconds * 1_000;
  }

  async processes(_: string, id: SandboxId): Promise<number[]> {
    return [...(await this.#running('processes', id)).processes.keys()];
  }

  async endProcess(_: string, id: SandboxId, pid: number): Promise<void> {
    (await this.#running('endProcess', id, pid)).processes.delete(pid);
  }

  async startServices(_: string, id: SandboxId): Promise<void> {
    this.#begin(await this.#running('startServices', id));
  }

  async pause(_: string, id: SandboxId): Promise<{ checkpointId: CheckpointId | null }> {
    await this.#note('pause', id);
    if (this.can.pause === 'none') throw unsupported('pause');
    const sandbox = this.#get(id);
    sandbox.state = 'paused';
    sandbox.checkpointId = makeId('ckpt', randomBytes);
    return { checkpointId: sandbox.checkpointId };
  }

  async mayMove(id: SandboxId): Promise<boolean> {
    await this.#note('mayMove', id);
    return this.moving;
  }

  async kill(_: string, id: SandboxId): Promise<void> {
    await this.#note('kill', id);
    const sandbox = this.sandboxes.get(id);
    if (sandbox !== undefined) sandbox.state = 'killed';
  }

  async find(_: string, id: SandboxId): Promise<SandboxSummary | undefined> {
    await this.#note('find', id);
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) return undefined;
    const { state, checkpointId, endsAt, damage } = sandbox;
    return { state, checkpointId, endsAt: state === 'running' ? endsAt : null, reason: null, damage };
  }

  urlOf(id: SandboxId, port: number): string {
    return `https://${port}-${id.slice(4)}.${this.host}`;
  }

  async requestPreview(id: SandboxId): Promise<PreviewResponse> {
    await this.#note('requestPreview', id);
    const sandbox = this.#get(id);
    const startedAt = this.#startedAt.get(id);
    if (sandbox.state !== 'running' || startedAt === undefined) return { status: 502, headers: {} };
    return this.answer(sandbox, this.#clock.now() - startedAt);
  }

  /** Starts the dev server: records a process and its start time. */
  #begin(sandbox: FakeSandbox): void {
    sandbox.processes.set(this.#nextPid++, 'dev-server');
    this.#startedAt.set(sandbox.id, this.#clock.now());
  }

  async #running(call: keyof BuildSandboxes, id: SandboxId, detail?: unknown): Promise<FakeSandbox> {
    await this.#note(call, id, detail);
    const sandbox = this.#get(id);
    if (sandbox.state !== 'running') throw new TorporError('conflict', `The sandbox is ${sandbox.state}.`);
    return sandbox;
  }

  #get(id: SandboxId): FakeSandbox {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined || sandbox.state === 'killed') {
      throw new TorporError('not_found', `There is no sandbox ${id}.`, { sandboxId: id });
    }
    return sandbox;
  }

  async #note(call: keyof BuildSandboxes, id: SandboxId | undefined, detail?: unknown): Promise<void> {
    this.calls.push({ call, id, at: this.#clock.now(), ...(detail === undefined ? {} : { detail }) });
    const fault = this.#faults.get(call)?.shift();
    await fault?.(id === undefined ? undefined : this.sandboxes.get(id));
  }
}

function unsupported(what: string): TorporError {
  return new TorporError('capability_unsupported', `The runtime cannot ${what}.`);
}

/** A fault that throws. */
export function throwing(error: unknown): FakeFault {
  return () => {
    throw error;
  };
}
