/**
 * The runtime for machines without root or gVisor: an instance is a directory and real processes.
 *
 * All changes to the instances of a sandbox run one after the other: a call that its caller has given up has ended
 * before the next call begins.
 */
import { mkdir } from 'node:fs/promises';
import type {
  Address,
  AgentAddress,
  Captured,
  Instance,
  MemoryVerdict,
  Observation,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
  TemplateSpec,
} from '@torpor/engine';
import { errnoOf, KeyedMutex } from '@torpor/host';
import {
  type Capabilities,
  type CheckpointId,
  type CheckpointMode,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { mapWriteErrors, refuseRestrictions } from '@torpor/runtime-shared';
import { adoptBaseline, capturedFiles, captureInstance, captureRemains } from './capture.ts';
import { openContent, workspaceIn, writeRecord } from './checkpoint-content.ts';
import { freeze, thaw } from './freeze.ts';
import { readInstanceRecord } from './instance/instance-record.ts';
import { OwnedPorts } from './processes/owned-ports.ts';
import { killAll } from './processes/process-signals.ts';
import {
  agentState,
  liveInstance,
  processesOf,
  processesUpTo,
  type RuntimeContext,
} from './runtime-context.ts';
import { startInstance } from './start.ts';
import { syncFileSystem } from './workspace/workspace.ts';

export const PROCESS_CAPABILITIES: Capabilities = {
  pause: 'files',
  replayable: true,
  fork: true,
  // Copying the files does not change the live ones.
  snapshotWhileRunning: true,
  pty: true,
  isolated: false,
  customTemplates: false,
};

export class ProcessRuntime implements Runtime {
  readonly name = 'process';
  readonly memoryEntries = [];
  readonly #ctx: RuntimeContext;
  readonly #mutex = new KeyedMutex<SandboxId>();
  readonly #reserving = new KeyedMutex<'reserve'>();
  readonly #ports: OwnedPorts;

  constructor(ctx: RuntimeContext) {
    this.#ctx = ctx;
    this.#ports = new OwnedPorts(ctx.host);
  }

  capabilities(): Capabilities {
    return PROCESS_CAPABILITIES;
  }

  checkNetwork(network: Network): void {
    refuseRestrictions(this.name, network);
  }

  async setNetwork(_: Instance, network: Network): Promise<void> {
    refuseRestrictions(this.name, network);
  }

  async prepareTemplate({ name, root }: TemplateSpec, staging: Staging): Promise<Captured> {
    if (root.kind !== 'builtin' || name !== 'base') {
      throw new TorporError('capability_unsupported', 'The process runtime has only the template "base".');
    }
    const workspace = workspaceIn(staging.path);
    await mapWriteErrors(workspace, () => mkdir(workspace, { mode: 0o755 }));
    await writeRecord(staging.path, { modes: new Map(), fifos: new Map() });
    return capturedFiles(name);
  }

  start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: CheckpointMode,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    return this.#exclusive(instance, signal, () => {
      if (mode === 'memory') throw noMemory();
      const dial = (port: number) => this.dial(instance, port);
      return startInstance(
        { ctx: this.#ctx, reserving: this.#reserving, dial },
        instance,
        from,
        spec,
        signal,
      );
    });
  }

  async observe(instance: Instance): Promise<Observation> {
    const { directory } = this.#ctx;
    const paths = directory.paths(instance);
    try {
      if (!(await directory.has(paths.directory))) {
        return { is: 'gone', files: false, why: 'there is no such instance' };
      }
      const record = await readInstanceRecord(paths.record);
      const state = await agentState(this.#ctx, record?.agent);
      if (state !== 'gone') return { is: state };
      const files = await directory.has(paths.home);
      if (record !== undefined) return { is: 'gone', files, why: 'its agent is not running' };
      const left = await (await processesOf(this.#ctx, instance)).find();
      return left.length === 0
        ? { is: 'gone', files, why: 'none of its processes is running' }
        : { is: 'unknown', why: 'its record is damaged, and some of its processes are running' };
    } catch (thrown) {
      const errno = errnoOf(thrown);
      if (errno === undefined) throw thrown;
      return { is: 'unknown', why: `its directory cannot be read: ${errno}` };
    }
  }

  async agent(instance: Instance): Promise<AgentAddress> {
    const { record, state } = await liveInstance(this.#ctx, instance);
    if (state === 'frozen') {
      throw new TorporError('transitioning', `Sandbox ${instance.sandboxId} is frozen.`, {
        sandboxId: instance.sandboxId,
      });
    }
    return { address: { socketPath: this.#ctx.directory.paths(instance).socket }, token: record.token };
  }

  async dial(instance: Instance, port: number): Promise<Address | null> {
    const record = await readInstanceRecord(this.#ctx.directory.paths(instance).record);
    if (record === undefined || (await agentState(this.#ctx, record.agent)) === 'gone') return null;
    const mapped = record.ports.filter(({ declared }) => declared === port).map(({ allocated }) => allocated);
    // A service that ignores PORT may listen on its declared port.
    for (const candidate of [...mapped, port]) {
      const members = async () => (await processesOf(this.#ctx, instance)).find();
      const address = await this.#ports.find(instance, candidate, { user: record.user, members });
      if (address !== null) return address;
    }
    return null;
  }

  async presync(instance: Instance, signal: AbortSignal): Promise<void> {
    await syncFileSystem(this.#ctx.directory.paths(instance).home, signal);
  }

  freeze(instance: Instance, signal: AbortSignal): Promise<void> {
    return this.#exclusive(instance, signal, () => freeze(this.#ctx, instance, signal));
  }

  capture(
    instance: Instance,
    mode: CheckpointMode,
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    return this.#exclusive(instance, signal, async () => {
      if (mode === 'memory') throw noMemory();
      return captureInstance(this.#ctx, instance, staging, signal);
    });
  }

  thaw(instance: Instance, sealed: CheckpointId | null, signal: AbortSignal): Promise<void> {
    return this.#exclusive(instance, signal, async () => {
      await adoptBaseline(this.#ctx, instance, sealed);
      await thaw(this.#ctx, instance, signal);
    });
  }

  recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    return this.#exclusive(instance, signal, async () => {
      const { directory } = this.#ctx;
      if (!(await directory.has(directory.paths(instance).home))) {
        throw new TorporError('checkpoint_missing', 'Its workspace does not exist any more.', {
          sandboxId: instance.sandboxId,
        });
      }
      if ((await this.observe(instance)).is !== 'gone') {
        throw new TorporError('conflict', 'Only a dead instance can be recovered.');
      }
      return captureRemains(this.#ctx, instance, staging, signal);
    });
  }

  destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    return this.#exclusive(upTo, signal, async () => {
      const { directory } = this.#ctx;
      const { sandboxId } = upTo;
      await killAll(await processesUpTo(this.#ctx, upTo), signal);
      for (const generation of await directory.generations(sandboxId)) {
        if (generation > upTo.generation) continue;
        await directory.remove({ sandboxId, generation });
        this.#ports.forget({ sandboxId, generation });
      }
      await directory.removeIfEmpty(sandboxId);
    });
  }

  list(): AsyncIterable<Instance> {
    return this.#ctx.directory.list();
  }

  async checkUsable(checkpoint: SealedCheckpoint): Promise<MemoryVerdict> {
    await openContent(checkpoint);
    return { usable: false, why: 'the process runtime keeps no memory' };
  }

  async verify(checkpoint: SealedCheckpoint): Promise<void> {
    await openContent(checkpoint);
  }

  /** Everything is in the checkpoint store, which deletes it. */
  async discard(): Promise<void> {}

  #exclusive<T>({ sandboxId }: Instance, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return this.#mutex.run(sandboxId, work, signal);
  }
}

function noMemory(): TorporError {
  return new TorporError('capability_unsupported', 'The process runtime keeps files, not memory.');
}
