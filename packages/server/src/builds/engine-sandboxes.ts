/**
 * What a build asks of sandboxes, answered by the engine. Nothing here decides about a lifecycle: a workbench is a
 * create or a fork, a preview is a fork of the workbench's checkpoint, sleep is a pause. Where the runtime cannot fork,
 * the workbench becomes the preview; where it cannot pause, its services are started in place.
 */
import type {
  BuildCapabilities,
  BuildSandboxes,
  CommandOrder,
  GeneratedFile,
  NewSandbox,
  SandboxGlance,
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
import { fromAgent } from '../sandbox/agent-failure.ts';
import { connect } from '../sandbox/awake.ts';
import { runCommand } from '../sandbox/command.ts';
import { TextPieces } from '../sandbox/output.ts';
import type { OwnDoor } from './own-door.ts';

export interface EngineSandboxesParts {
  readonly engine: Engine;
  readonly gateway: Pick<Gateway, 'urlOf'>;
  readonly door: OwnDoor;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'next'>;
  readonly settings: RuntimeSettings;
}

/** By which the sandboxes of a job are found again. */
const JOB_KEY = 'torpor.build';
const ALIVE = ['creating', 'running', 'pausing', 'paused', 'resuming'] as const;
const MAX_SANDBOXES = 100;
const WRITTEN_AT_ONCE = 8;
/** Deeper than any path that a check lets through. */
const MAX_DEPTH = 32;
/** What another operation may take before ours has its turn. */
const TURN_MS = 60_000;
const LOOK_AGAIN_MS = 100;

export class EngineSandboxes implements BuildSandboxes {
  private readonly parts: EngineSandboxesParts;

  constructor(parts: EngineSandboxesParts) {
    this.parts = parts;
  }

  async capabilities(id?: SandboxId): Promise<BuildCapabilities> {
    const name = id === undefined ? undefined : (await this.parts.engine.find(id))?.sandbox.runtime;
    const runtimes = this.parts.engine.runtimes();
    const runtime = runtimes.find((one) => (name === undefined ? one.default : one.name === name));
    if (runtime === undefined) {
      throw new TorporError('capability_unsupported', `This server has no runtime "${name}".`);
    }
    return runtime.capabilities;
  }

  async create({ org, jobId, lifetimeSeconds, from }: NewSandbox, signal: AbortSignal): Promise<SandboxId> {
    signal.throwIfAborted();
    const { engine } = this.parts;
    const wanted = { metadata: { [JOB_KEY]: jobId }, timeoutSeconds: lifetimeSeconds };
    const id =
      from === undefined
        ? (await engine.create({ org }, wanted)).sandbox.id
        : await this.forkAsleep(org, from, { ...wanted, services: [] }, signal);
    return this.unlessLeft(org, id, signal);
  }

  async ofJob(org: string, jobId: JobId): Promise<SandboxId[]> {
    const filter = { org, states: ALIVE, metadata: { [JOB_KEY]: jobId } };
    return (await this.parts.engine.list(filter, '', MAX_SANDBOXES)).items.map(({ id }) => id);
  }

  async write(
    org: string,
    id: SandboxId,
    directory: string,
    files: readonly GeneratedFile[],
    signal: AbortSignal,
  ): Promise<void> {
    await this.inside(org, id, async (agent) => {
      for (let at = 0; at < files.length; at += WRITTEN_AT_ONCE) {
        await Promise.all(
          files
            .slice(at, at + WRITTEN_AT_ONCE)
            .map(({ path, content }) => agent.files.write(`${directory}/${path}`, content, { signal })),
        );
      }
    });
    const programs = files.filter(({ executable }) => executable).map(({ path }) => shellWord(path));
    if (programs.length === 0) return;
    const command = `chmod +x -- ${programs.join(' ')}`;
    await this.run(org, id, { command, cwd: directory, timeoutMs: TURN_MS, output: () => {} }, signal);
  }

  async remove(
    org: string,
    id: SandboxId,
    directory: string,
    paths: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    await this.inside(org, id, async (agent) => {
      for (const path of paths) {
        await agent.filesystem
          .remove({ path: `${directory}/${path}` }, { signal })
          .catch((thrown: unknown) => {
            if (fromAgent(thrown, id).code !== 'not_found') throw thrown;
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
    return this.inside(org, id, async (agent) => {
      const { entries } = await agent.filesystem.listDir({ path: directory, depth: MAX_DEPTH }, { signal });
      const { entry: root } = await agent.filesystem.stat({ path: directory }, { signal });
      const plain = entries.filter(({ type, path }) => type === FileType.FILE && !isOfATool(path));
      const total = plain.reduce((sum, { size }) => sum + Number(size), 0);
      if (plain.length > limits.count || total > limits.totalBytes) {
        throw new TorporError('invalid_request', 'The runner made more than is allowed.');
      }
      const files: GeneratedFile[] = [];
      for (const { path, mode } of plain) {
        const chunks: Buffer[] = [];
        let size = 0;
        for await (const chunk of await agent.files.read(path, { signal })) {
          size += (chunk as Buffer).length;
          // It may grow while it is read.
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
    order: CommandOrder,
    signal: AbortSignal,
  ): Promise<{ exitCode: number }> {
    return this.inside(org, id, async (agent) => {
      const { output, ...command } = order;
      const text = new TextPieces();
      const tag = this.parts.ids.next('req');
      for await (const event of runCommand(agent, this.parts.clock, { ...command, tag }, signal)) {
        if (event.is === 'stdout' || event.is === 'stderr')
          output(event.is, text.piece(event.is, event.bytes));
        if (event.is === 'end') return { exitCode: event.exitCode };
      }
      throw new TorporError('unreachable', 'The command ended without a word.', { sandboxId: id });
    });
  }

  async publish(
    { org, jobId, lifetimeSeconds }: Omit<NewSandbox, 'from'>,
    workbench: SandboxId,
    service: Service,
    signal: AbortSignal,
  ): Promise<SandboxId> {
    const { engine } = this.parts;
    const { pause, fork } = await this.capabilities(workbench);
    if (pause === 'none' || !fork) {
      await this.serveFrom(org, workbench, service, signal);
      await this.setLifetime(org, workbench, lifetimeSeconds, signal);
      return workbench;
    }
    // Files only: whatever still runs in the workbench is not part of what was built.
    await engine.pause({ org, signal }, workbench, { mode: 'files' });
    if (await this.isUsedUpByStart(workbench)) await this.connect(org, workbench, signal);
    const preview = await this.fork(org, workbench, {
      metadata: { [JOB_KEY]: jobId },
      timeoutSeconds: lifetimeSeconds,
      services: [service],
    });
    await this.unlessLeft(org, preview, signal);
    await engine.kill({ org }, workbench);
    return preview;
  }

  async connect(org: string, id: SandboxId, signal: AbortSignal): Promise<void> {
    await this.inTurn(signal, () => this.parts.engine.resume({ org, signal }, id));
  }

  async setLifetime(org: string, id: SandboxId, seconds: number, signal: AbortSignal): Promise<void> {
    await this.inTurn(signal, () => this.parts.engine.setLifetime(org, id, seconds));
  }

  async processes(org: string, id: SandboxId, signal: AbortSignal): Promise<number[]> {
    return this.inside(org, id, async (agent) => {
      const { processes } = await agent.process.list({}, { signal });
      return processes.map(({ pid }) => pid);
    });
  }

  async endProcess(org: string, id: SandboxId, pid: number, signal: AbortSignal): Promise<void> {
    await this.inside(org, id, async (agent) => {
      const process = { selector: { case: 'pid', value: pid } } as const;
      await agent.process.sendSignal({ process, signal: Signal.SIGKILL }, { signal });
    });
  }

  /** The workbench itself becomes the preview. What still runs in it is no part of what was built. */
  private async serveFrom(org: string, id: SandboxId, service: Service, signal: AbortSignal): Promise<void> {
    await this.parts.engine.setServices(org, id, [service]);
    for (const pid of await this.processes(org, id, signal)) {
      // It may have ended meanwhile.
      await this.endProcess(org, id, pid, signal).catch(() => {});
    }
    await this.startServices(org, id, signal);
  }

  /**
   * A start from files starts the declared services, each where its runtime says. Where there is no pause there is no
   * other start; they are started in the sandbox as it runs.
   */
  async startServices(org: string, id: SandboxId, signal: AbortSignal): Promise<void> {
    if ((await this.capabilities(id)).pause === 'none') return this.startInPlace(org, id, signal);
    await this.inTurn(signal, () => this.parts.engine.pause({ org, signal }, id, { mode: 'files' }));
    await this.connect(org, id, signal);
  }

  private async startInPlace(org: string, id: SandboxId, signal: AbortSignal): Promise<void> {
    const { engine, clock, settings } = this.parts;
    const { services } = await engine.get(org, id);
    await this.inside(org, id, (agent) => {
      const dial = (port: number) => engine.dial(org, id, port);
      return startServices({ agent, clock, portFor: declaredPort, dial, settings }, services, signal);
    });
  }

  async pause(org: string, id: SandboxId, signal: AbortSignal): Promise<{ checkpointId: CheckpointId }> {
    const { checkpoint } = await this.inTurn(signal, () => this.parts.engine.pause({ org, signal }, id));
    return { checkpointId: checkpoint.id };
  }

  async kill(org: string, id: SandboxId): Promise<void> {
    await this.parts.engine.kill({ org }, id).catch((thrown: unknown) => {
      if (!(thrown instanceof TorporError) || thrown.code !== 'not_found') throw thrown;
    });
  }

  async find(org: string, id: SandboxId): Promise<SandboxGlance | undefined> {
    const found = await this.parts.engine.find(id);
    if (found === undefined || found.org !== org) return undefined;
    const { state, checkpointId, endsAt, reason } = found.sandbox;
    const paused = state === 'paused' && checkpointId !== null;
    const damage = paused ? await this.damageOf(org, id, checkpointId) : null;
    return { state, checkpointId, endsAt, reason, damage };
  }

  urlOf(id: SandboxId, port: number): string {
    return this.parts.gateway.urlOf(id, port);
  }

  visit(
    ...[id, port, order, signal]: Parameters<BuildSandboxes['visit']>
  ): ReturnType<BuildSandboxes['visit']> {
    return this.parts.door.visit(new URL(this.urlOf(id, port)).host, order, signal);
  }

  /**
   * A damaged part of a checkpoint need not be the one that a start uses, so damage alone is no proof. A resume that
   * has failed for it is: nothing but another checkpoint would make the next one succeed.
   */
  private async damageOf(
    org: string,
    id: SandboxId,
    checkpointId: CheckpointId,
  ): Promise<SandboxGlance['damage']> {
    const { engine } = this.parts;
    const { health, healthDetail } = await engine.checkpoint(org, checkpointId);
    if (health !== 'damaged') return null;
    const [last] = (await engine.operations(org, id, undefined, 1)).items;
    const failure = last?.kind === 'resume' && last.outcome === 'failed' ? last.error : null;
    const sure =
      failure !== null && (failure.code === 'checkpoint_corrupt' || failure.code === 'checkpoint_missing');
    return { sure, reason: healthDetail ?? `checkpoint ${checkpointId} is damaged` };
  }

  /** One that sleeps and is used up by its next start is forked awake, and sleeps again. */
  private async forkAsleep(
    org: string,
    from: SandboxId,
    request: ForkRequest,
    signal: AbortSignal,
  ): Promise<SandboxId> {
    const { state } = await this.parts.engine.get(org, from);
    if (state !== 'paused' || !(await this.isUsedUpByStart(from))) return this.fork(org, from, request);
    await this.connect(org, from, signal);
    try {
      return await this.fork(org, from, request);
    } finally {
      // If not now, then when it has been idle for long enough.
      await this.pause(org, from, signal).catch(() => {});
    }
  }

  /** Whether the checkpoint that a pause leaves is not there for a fork. */
  private async isUsedUpByStart(id: SandboxId): Promise<boolean> {
    const { engine } = this.parts;
    const runtime = (await engine.find(id))?.sandbox.runtime;
    return engine.runtimes().some(({ name, capabilities }) => name === runtime && !capabilities.replayable);
  }

  private async fork(org: string, from: SandboxId, request: ForkRequest): Promise<SandboxId> {
    const [fork] = (await this.parts.engine.fork({ org }, from, request)).forks;
    if (fork === undefined) throw new TorporError('internal', 'A fork made nothing.');
    if ('error' in fork) throw TorporError.fromBody(fork.error);
    return fork.sandbox.id;
  }

  /** Nobody waits for it any more: then it must not be left behind. */
  private async unlessLeft(org: string, id: SandboxId, signal: AbortSignal): Promise<SandboxId> {
    if (!signal.aborted) return id;
    await this.kill(org, id);
    throw signal.reason;
  }

  /** Work with the agent, which holds the sandbox awake. */
  private async inside<T>(org: string, id: SandboxId, work: (agent: AgentClient) => Promise<T>): Promise<T> {
    const { engine } = this.parts;
    const letGo = engine.leases.hold(id);
    const agent = connect(
      await engine.agent(org, id).catch((thrown: unknown) => {
        letGo();
        throw thrown;
      }),
    );
    try {
      return await work(agent);
    } catch (thrown) {
      throw fromAgent(thrown, id);
    } finally {
      agent.close();
      letGo();
    }
  }

  /** Another operation may be under way; then ours comes after it. */
  private async inTurn<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const { clock } = this.parts;
    const until = clock.monotonic() + TURN_MS;
    for (;;) {
      try {
        return await work();
      } catch (thrown) {
        const busy = thrown instanceof TorporError && thrown.code === 'transitioning';
        if (!busy || clock.monotonic() > until) throw thrown;
      }
      await clock.sleep(LOOK_AGAIN_MS, signal);
    }
  }
}

function isOfATool(path: string): boolean {
  return path.split('/').some((part) => part === 'node_modules' || part === '.git');
}

function shellWord(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
