/**
 * The port of builds to sandboxes, implemented with the engine. It makes no lifecycle decisions: a build sandbox is a
 * create or a fork, a preview is a fork of the build sandbox's checkpoint, sleep is a pause. When the runtime cannot
 * fork, the build sandbox becomes the preview. When it cannot pause, services are started in the running sandbox.
 */
import type {
  BuildCapabilities,
  BuildSandboxes,
  GeneratedFile,
  NewSandbox,
  SandboxCommand,
  SandboxSummary,
} from '@torpor/builds';
import type { Clock, Engine, Ids } from '@torpor/engine';
import { type AgentClient, FileType, Signal } from '@torpor/envd';
import type { Gateway } from '@torpor/gateway';
import {
  type CheckpointId,
  type ForkRequest,
  type JobId,
  type SandboxId,
  type Service,
  TorporError,
} from '@torpor/protocol';
import { declaredPort, type RuntimeSettings, startServices } from '@torpor/runtime-shared';
import type { ConnectToAgent } from '../cluster/follow-sandboxes.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { runCommand } from '../sandbox/command.ts';
import { OutputDecoder } from '../sandbox/output.ts';
import { waitForTransition } from '../sandbox/wait-for-transition.ts';
import type { PreviewClient } from './preview-client.ts';

export interface EngineSandboxesContext {
  readonly engine: Engine;
  readonly connect: ConnectToAgent;
  readonly gateway: Pick<Gateway, 'urlOf'>;
  readonly previews: PreviewClient;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'next'>;
  readonly settings: RuntimeSettings;
}

/** The metadata key that holds the job id, so that the sandboxes of a job can be found again. */
const JOB_METADATA_KEY = 'torpor.build';
const ALIVE = ['creating', 'running', 'pausing', 'paused', 'resuming'] as const;
const MAX_SANDBOXES = 100;
const MAX_PARALLEL_WRITES = 8;
/** Deeper than any path that the checks of generated files accept. */
const MAX_DEPTH = 32;
/** How long marking files as executable may take. */
const CHMOD_MS = 60_000;

export class EngineSandboxes implements BuildSandboxes {
  readonly #ctx: EngineSandboxesContext;

  constructor(ctx: EngineSandboxesContext) {
    this.#ctx = ctx;
  }

  async capabilities(id?: SandboxId): Promise<BuildCapabilities> {
    const name = id === undefined ? undefined : (await this.#ctx.engine.find(id))?.sandbox.runtime;
    const runtimes = this.#ctx.engine.runtimes();
    const runtime = runtimes.find((one) => (name === undefined ? one.default : one.name === name));
    if (runtime === undefined) {
      throw new TorporError('capability_unsupported', `This server has no runtime "${name}".`);
    }
    return runtime.capabilities;
  }

  async create({ org, jobId, lifetimeSeconds, from }: NewSandbox, signal: AbortSignal): Promise<SandboxId> {
    signal.throwIfAborted();
    const { engine } = this.#ctx;
    const wanted = { metadata: { [JOB_METADATA_KEY]: jobId }, timeoutSeconds: lifetimeSeconds };
    const id =
      from === undefined
        ? (await engine.create({ org }, wanted)).sandbox.id
        : await this.#forkPaused(org, from, { ...wanted, services: [] }, signal);
    return this.#killIfAborted(org, id, signal);
  }

  async ofJob(org: string, jobId: JobId): Promise<SandboxId[]> {
    const filter = { org, states: ALIVE, metadata: { [JOB_METADATA_KEY]: jobId } };
    return (await this.#ctx.engine.list(filter, '', MAX_SANDBOXES)).items.map(({ id }) => id);
  }

  async write(
    org: string,
    id: SandboxId,
    directory: string,
    files: readonly GeneratedFile[],
    signal: AbortSignal,
  ): Promise<void> {
    await this.#withAgent(org, id, async (agent) => {
      for (let at = 0; at < files.length; at += MAX_PARALLEL_WRITES) {
        await Promise.all(
          files
            .slice(at, at + MAX_PARALLEL_WRITES)
            .map(({ path, content }) => agent.files.write(`${directory}/${path}`, content, { signal })),
        );
      }
    });
    const programs = files.filter(({ executable }) => executable).map(({ path }) => shellWord(path));
    if (programs.length === 0) return;
    const command = `chmod +x -- ${programs.join(' ')}`;
    await this.run(org, id, { command, cwd: directory, timeoutMs: CHMOD_MS, output: () => {} }, signal);
  }

  async remove(
    org: string,
    id: SandboxId,
    directory: string,
    paths: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    await this.#withAgent(org, id, async (agent) => {
      for (const path of paths) {
        await agent.filesystem
          .remove({ path: `${directory}/${path}` }, { signal })
          .catch((thrown: unknown) => {
            if (fromAgentError(thrown, id).code !== 'not_found') throw thrown;
          });
      }
    });
  }

  async read(
    org: string,
    id: SandboxId,
    directory: string,
    limits: { readonly count: number; readonly totalBytes: number },
    signal: AbortSignal,
  ): Promise<GeneratedFile[]> {
    return this.#withAgent(org, id, async (agent) => {
      const { entries } = await agent.filesystem.listDir({ path: directory, depth: MAX_DEPTH }, { signal });
      const { entry: root } = await agent.filesystem.stat({ path: directory }, { signal });
      const plain = entries.filter(({ type, path }) => type === FileType.FILE && !isToolDirectory(path));
      const total = plain.reduce((sum, { size }) => sum + Number(size), 0);
      if (plain.length > limits.count || total > limits.totalBytes) {
        throw new TorporError('invalid_request', 'The runner made more files than are allowed.');
      }
      const files: GeneratedFile[] = [];
      for (const { path, mode } of plain) {
        const chunks: Buffer[] = [];
        let size = 0;
        for await (const chunk of await agent.files.read(path, { signal })) {
          size += (chunk as Buffer).length;
          // The file may grow while it is read.
          if (size > limits.totalBytes) throw new TorporError('invalid_request', 'A file is too large.');
          chunks.push(chunk as Buffer);
        }
        files.push({
          path: path.slice((root?.path ?? '').length + 1),
          content: new Uint8Array(Buffer.concat(chunks)),
          executable: (mode & 0o100) !== 0,
        });
      }
      return files;
    });
  }

  async run(
    org: string,
    id: SandboxId,
    order: SandboxCommand,
    signal: AbortSignal,
  ): Promise<{ exitCode: number }> {
    return this.#withAgent(org, id, async (agent) => {
      const { output, ...command } = order;
      const text = new OutputDecoder();
      const tag = this.#ctx.ids.next('req');
      for await (const event of runCommand(agent, this.#ctx.clock, { ...command, tag }, signal)) {
        if (event.is === 'stdout' || event.is === 'stderr')
          output(event.is, text.decode(event.is, event.bytes));
        if (event.is === 'end') return { exitCode: event.exitCode };
      }
      throw new TorporError('unreachable', 'The connection closed before the command ended.', {
        sandboxId: id,
      });
    });
  }

  async publish(
    { org, jobId, lifetimeSeconds }: Omit<NewSandbox, 'from'>,
    buildSandbox: SandboxId,
    service: Service,
    signal: AbortSignal,
  ): Promise<SandboxId> {
    const { engine } = this.#ctx;
    const { pause, fork } = await this.capabilities(buildSandbox);
    if (pause === 'none' || !fork) {
      await this.#serveInPlace(org, buildSandbox, service, signal);
      await this.setLifetime(org, buildSandbox, lifetimeSeconds, signal);
      return buildSandbox;
    }
    // Files only: processes that still run in the build sandbox are not part of the build.
    await engine.pause({ org, signal }, buildSandbox, { mode: 'files' });
    if (await this.#isConsumedByStart(buildSandbox)) await this.connect(org, buildSandbox, signal);
    const preview = await this.#fork(org, buildSandbox, {
      metadata: { [JOB_METADATA_KEY]: jobId },
      timeoutSeconds: lifetimeSeconds,
      services: [service],
    });
    await this.#killIfAborted(org, preview, signal);
    await engine.kill({ org }, buildSandbox);
    return preview;
  }

  async connect(org: string, id: SandboxId, signal: AbortSignal): Promise<void> {
    await waitForTransition(this.#ctx.clock, signal, () => this.#ctx.engine.resume({ org, signal }, id));
  }

  async setLifetime(org: string, id: SandboxId, seconds: number, signal: AbortSignal): Promise<void> {
    await waitForTransition(this.#ctx.clock, signal, () => this.#ctx.engine.setLifetime(org, id, seconds));
  }

  async processes(org: string, id: SandboxId, signal: AbortSignal): Promise<number[]> {
    return this.#withAgent(org, id, async (agent) => {
      const { processes } = await agent.process.list({}, { signal });
      return processes.map(({ pid }) => pid);
    });
  }

  async endProcess(org: string, id: SandboxId, pid: number, signal: AbortSignal): Promise<void> {
    await this.#withAgent(org, id, async (agent) => {
      const process = { selector: { case: 'pid', value: pid } } as const;
      await agent.process.sendSignal({ process, signal: Signal.SIGKILL }, { signal });
    });
  }

  /** Turns the build sandbox itself into the preview. Processes that still run in it are not part of the build. */
  async #serveInPlace(org: string, id: SandboxId, service: Service, signal: AbortSignal): Promise<void> {
    await this.#ctx.engine.setServices(org, id, [service]);
    for (const pid of await this.processes(org, id, signal)) {
      // The process may have ended meanwhile.
      await this.endProcess(org, id, pid, signal).catch(() => {});
    }
    await this.startServices(org, id, signal);
  }

  /**
   * Pauses and resumes the sandbox, because a start from files starts the declared services. A runtime that cannot pause
   * has no such start, so the services are started in the running sandbox.
   */
  async startServices(org: string, id: SandboxId, signal: AbortSignal): Promise<void> {
    if ((await this.capabilities(id)).pause === 'none') return this.#startInPlace(org, id, signal);
    await waitForTransition(this.#ctx.clock, signal, () =>
      this.#ctx.engine.pause({ org, signal }, id, { mode: 'files' }),
    );
    await this.connect(org, id, signal);
  }

  async #startInPlace(org: string, id: SandboxId, signal: AbortSignal): Promise<void> {
    const { engine, clock, settings } = this.#ctx;
    const { services } = await engine.get(org, id);
    await this.#withAgent(org, id, (agent) => {
      const dial = (port: number) => engine.dial(org, id, port);
      return startServices({ agent, clock, portFor: declaredPort, dial, settings }, services, signal);
    });
  }

  async pause(org: string, id: SandboxId, signal: AbortSignal): Promise<{ checkpointId: CheckpointId }> {
    const { checkpoint } = await waitForTransition(this.#ctx.clock, signal, () =>
      this.#ctx.engine.pause({ org, signal }, id),
    );
    return { checkpointId: checkpoint.id };
  }

  async kill(org: string, id: SandboxId): Promise<void> {
    await this.#ctx.engine.kill({ org }, id).catch((thrown: unknown) => {
      if (!(thrown instanceof TorporError) || thrown.code !== 'not_found') throw thrown;
    });
  }

  async find(org: string, id: SandboxId): Promise<SandboxSummary | undefined> {
    const found = await this.#ctx.engine.find(id);
    if (found === undefined || found.org !== org) return undefined;
    const { state, checkpointId, endsAt, reason } = found.sandbox;
    const paused = state === 'paused' && checkpointId !== null;
    const damage = paused ? await this.#damageOf(org, id, checkpointId) : null;
    return { state, checkpointId, endsAt, reason, damage };
  }

  urlOf(id: SandboxId, port: number): string {
    return this.#ctx.gateway.urlOf(id, port);
  }

  requestPreview(
    ...[id, port, order, signal]: Parameters<BuildSandboxes['requestPreview']>
  ): ReturnType<BuildSandboxes['requestPreview']> {
    return this.#ctx.previews.request(new URL(this.urlOf(id, port)).host, order, signal);
  }

  /**
   * A damaged part of a checkpoint need not be the part that a start uses, so damage alone is no proof. A resume that
   * failed because of the damage is proof: only another checkpoint would let the next resume succeed.
   */
  async #damageOf(org: string, id: SandboxId, checkpointId: CheckpointId): Promise<SandboxSummary['damage']> {
    const { engine } = this.#ctx;
    const { health, healthDetail } = await engine.checkpoint(org, checkpointId);
    if (health !== 'damaged') return null;
    const [last] = (await engine.operations(org, id, undefined, 1)).items;
    const failure = last?.kind === 'resume' && last.outcome === 'failed' ? last.error : null;
    const sure =
      failure !== null && (failure.code === 'checkpoint_corrupt' || failure.code === 'checkpoint_missing');
    return { sure, reason: healthDetail ?? `checkpoint ${checkpointId} is damaged` };
  }

  /** When the next start would consume the checkpoint of a paused sandbox, resumes it for the fork and pauses it again. */
  async #forkPaused(
    org: string,
    from: SandboxId,
    request: ForkRequest,
    signal: AbortSignal,
  ): Promise<SandboxId> {
    const { state } = await this.#ctx.engine.get(org, from);
    if (state !== 'paused' || !(await this.#isConsumedByStart(from))) return this.#fork(org, from, request);
    await this.connect(org, from, signal);
    try {
      return await this.#fork(org, from, request);
    } finally {
      // When this pause fails, the idle timeout pauses the sandbox later.
      await this.pause(org, from, signal).catch(() => {});
    }
  }

  /** Whether a start consumes the checkpoint of a pause, so that a fork cannot use it. */
  async #isConsumedByStart(id: SandboxId): Promise<boolean> {
    const { engine } = this.#ctx;
    const runtime = (await engine.find(id))?.sandbox.runtime;
    return engine.runtimes().some(({ name, capabilities }) => name === runtime && !capabilities.replayable);
  }

  async #fork(org: string, from: SandboxId, request: ForkRequest): Promise<SandboxId> {
    const [fork] = (await this.#ctx.engine.fork({ org }, from, request)).forks;
    if (fork === undefined) throw new TorporError('internal', 'The fork made no sandbox.');
    if ('error' in fork) throw TorporError.fromBody(fork.error);
    return fork.sandbox.id;
  }

  /** When the caller has stopped waiting, kills the new sandbox instead of leaving it behind. */
  async #killIfAborted(org: string, id: SandboxId, signal: AbortSignal): Promise<SandboxId> {
    if (!signal.aborted) return id;
    await this.kill(org, id);
    throw signal.reason;
  }

  /** Works with the agent, and keeps the sandbox awake meanwhile. */
  async #withAgent<T>(org: string, id: SandboxId, work: (agent: AgentClient) => Promise<T>): Promise<T> {
    const { engine, connect } = this.#ctx;
    const releaseLease = engine.leases.hold(id);
    let agent: AgentClient | undefined;
    try {
      agent = await connect(org, id);
      return await work(agent);
    } catch (thrown) {
      throw fromAgentError(thrown, id);
    } finally {
      agent?.close();
      releaseLease();
    }
  }
}

function isToolDirectory(path: string): boolean {
  return path.split('/').some((part) => part === 'node_modules' || part === '.git');
}

function shellWord(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
