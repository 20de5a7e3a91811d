/**
 * The runtime of machines without root or gVisor: a directory and real processes.
 *
 * Everything that changes an instance takes its turn with the sandbox, so that what a caller gave up on
 * has ended before what it asks for next begins.
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
  TemplateOrder,
} from '@torpor/engine';
import { errnoOf, KeyedMutex } from '@torpor/host';
import {
  type Capabilities,
  type CheckpointId,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { mapWriteErrors, refuseRestrictions } from '@torpor/runtime-shared';
import { dropBaseline, noticesWrites, readBaseline, writeBaseline } from './baseline.ts';
import { needsOf, openContent, workspaceIn, writeRecord } from './checkpoint-content.ts';
import { freeze, thaw } from './freeze.ts';
import { agentState, crowdOf, crowdUpTo, type Ground, liveInstance } from './ground.ts';
import { readInstanceRecord } from './instance-record.ts';
import { OwnedPorts } from './owned-ports.ts';
import { killAll, stopAll } from './process-signals.ts';
import { startInstance } from './start.ts';
import { capture, syncFileSystem } from './workspace.ts';

const CAPABILITIES: Capabilities = {
  pause: 'files',
  replayable: true,
  fork: true,
  // A copy of the files leaves the live ones alone.
  snapshotWhileRunning: true,
  pty: true,
  isolated: false,
  customTemplates: false,
};

export class ProcessRuntime implements Runtime {
  readonly name = 'process';
  readonly memoryEntries = [];
  readonly #ground: Ground;
  readonly #turns = new KeyedMutex<SandboxId>();
  readonly #reserving = new KeyedMutex<'reserve'>();
  readonly #ports: OwnedPorts;

  constructor(ground: Ground) {
    this.#ground = ground;
    this.#ports = new OwnedPorts(ground.host);
  }

  capabilities(): Capabilities {
    return CAPABILITIES;
  }

  checkNetwork(network: Network): void {
    refuseRestrictions(this.name, network);
  }

  async setNetwork(_: Instance, network: Network): Promise<void> {
    refuseRestrictions(this.name, network);
  }

  async prepareTemplate({ name, root }: TemplateOrder, staging: Staging): Promise<Captured> {
    if (root.kind !== 'builtin' || name !== 'base') {
      throw new TorporError('capability_unsupported', 'The process runtime has no template but "base".');
    }
    const workspace = workspaceIn(staging.path);
    await mapWriteErrors(workspace, () => mkdir(workspace, { mode: 0o755 }));
    await writeRecord(staging.path, { modes: new Map(), fifos: new Map() });
    return captured(name);
  }

  start(
    instance: Instance,
    from: SealedCheckpoint,
    use: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    return this.#turn(instance, signal, () => {
      if (use === 'memory') throw noMemory();
      const dial = (port: number) => this.dial(instance, port);
      return startInstance(
        { ground: this.#ground, reserving: this.#reserving, dial },
        instance,
        from,
        spec,
        signal,
      );
    });
  }

  async observe(instance: Instance): Promise<Observation> {
    const { directory } = this.#ground;
    const paths = directory.paths(instance);
    try {
      if (!(await directory.has(paths.directory))) {
        return { is: 'gone', files: false, why: 'there is no such instance' };
      }
      const record = await readInstanceRecord(paths.record);
      const state = await agentState(this.#ground, record?.agent);
      if (state !== 'gone') return { is: state };
      const files = await directory.has(paths.home);
      if (record !== undefined) return { is: 'gone', files, why: 'its agent is not running' };
      const left = await (await crowdOf(this.#ground, instance)).find();
      return left.length === 0
        ? { is: 'gone', files, why: 'none of its processes is running' }
        : { is: 'unknown', why: 'its record is damaged, and processes of it are running' };
    } catch (thrown) {
      const errno = errnoOf(thrown);
      if (errno === undefined) throw thrown;
      return { is: 'unknown', why: `its directory cannot be read: ${errno}` };
    }
  }

  async agent(instance: Instance): Promise<AgentAddress> {
    const { record, state } = await liveInstance(this.#ground, instance);
    if (state === 'frozen') {
      throw new TorporError('transitioning', `Sandbox ${instance.sandboxId} is frozen.`, {
        sandboxId: instance.sandboxId,
      });
    }
    return { address: { socketPath: this.#ground.directory.paths(instance).socket }, token: record.token };
  }

  async dial(instance: Instance, port: number): Promise<Address | null> {
    const record = await readInstanceRecord(this.#ground.directory.paths(instance).record);
    if (record === undefined || (await agentState(this.#ground, record.agent)) === 'gone') return null;
    const mapped = record.ports.filter(({ declared }) => declared === port).map(({ allocated }) => allocated);
    // A service that does not look at PORT may have got its declared port all the same.
    for (const candidate of [...mapped, port]) {
      const members = async () => (await crowdOf(this.#ground, instance)).find();
      const address = await this.#ports.find(instance, candidate, members);
      if (address !== null) return address;
    }
    return null;
  }

  async presync(instance: Instance, signal: AbortSignal): Promise<void> {
    await syncFileSystem(this.#ground.directory.paths(instance).home, signal);
  }

  freeze(instance: Instance, signal: AbortSignal): Promise<void> {
    return this.#turn(instance, signal, () => freeze(this.#ground, instance, signal));
  }

  capture(
    instance: Instance,
    mode: 'memory' | 'files',
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    return this.#turn(instance, signal, async () => {
      if (mode === 'memory') throw noMemory();
      const { state, crowd } = await liveInstance(this.#ground, instance);
      if (state !== 'frozen') throw new TorporError('conflict', 'Only a frozen instance can be captured.');
      await stopAll(crowd, signal);
      const paths = this.#ground.directory.paths(instance);
      // Without it a later write through a mapping might go unnoticed, and nothing is concluded from now.
      const synced = await syncFileSystem(paths.home, signal);
      const next = await capture(paths.home, staging, await readBaseline(paths.baseline), signal);
      if (synced && (await noticesWrites(paths.directory))) await writeBaseline(paths.captured, next);
      return captured(null);
    });
  }

  thaw(instance: Instance, sealed: CheckpointId | null, signal: AbortSignal): Promise<void> {
    return this.#turn(instance, signal, async () => {
      await this.#adoptBaseline(instance, sealed);
      await thaw(this.#ground, instance, signal);
    });
  }

  salvage(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    return this.#turn(instance, signal, async () => {
      const { directory } = this.#ground;
      const paths = directory.paths(instance);
      if (!(await directory.has(paths.home))) {
        throw new TorporError('checkpoint_missing', 'Nothing of its workspace is left.', {
          sandboxId: instance.sandboxId,
        });
      }
      if ((await this.observe(instance)).is !== 'gone') {
        throw new TorporError('conflict', 'Only what is dead can be salvaged.');
      }
      // Its agent is gone, but what it had started may still write.
      await killAll(await crowdOf(this.#ground, instance), signal);
      await capture(paths.home, staging, await readBaseline(paths.baseline), signal);
      return captured(null);
    });
  }

  destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    return this.#turn(upTo, signal, async () => {
      const { directory } = this.#ground;
      const { sandboxId } = upTo;
      await killAll(await crowdUpTo(this.#ground, upTo), signal);
      for (const generation of await directory.generations(sandboxId)) {
        if (generation > upTo.generation) continue;
        await directory.remove({ sandboxId, generation });
        this.#ports.forget({ sandboxId, generation });
      }
      await directory.forget(sandboxId);
    });
  }

  list(): AsyncIterable<Instance> {
    return this.#ground.directory.list();
  }

  async inspect(checkpoint: SealedCheckpoint): Promise<MemoryVerdict> {
    await openContent(checkpoint);
    return { usable: false, why: 'the process runtime keeps no memory' };
  }

  async verify(checkpoint: SealedCheckpoint): Promise<void> {
    await openContent(checkpoint);
  }

  /** Everything lies in the store. */
  async discard(): Promise<void> {}

  /** A capture that came to be sealed is what the next one may share files with. */
  async #adoptBaseline(instance: Instance, sealed: CheckpointId | null): Promise<void> {
    const { directory, sealedPath } = this.#ground;
    const paths = directory.paths(instance);
    const latest = sealed === null || sealedPath === null ? undefined : await readBaseline(paths.captured);
    if (latest !== undefined && latest.checkpointId === sealed && sealedPath !== null) {
      await writeBaseline(paths.baseline, { ...latest, workspace: workspaceIn(sealedPath(sealed)) });
    }
    await dropBaseline(paths.captured);
  }

  #turn<T>({ sandboxId }: Instance, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(sandboxId, work, signal);
  }
}

function captured(template: string | null): Captured {
  return {
    parts: { files: true, memory: false },
    needs: needsOf(template),
    // Shared files belong to each checkpoint that has them: none stands on another.
    standsOn: [],
    external: null,
  };
}

function noMemory(): TorporError {
  return new TorporError('capability_unsupported', 'The process runtime keeps files, not memory.');
}
