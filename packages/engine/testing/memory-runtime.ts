/**
 * A runtime whose sandboxes are maps in memory: files are a map of texts, memory is a counter. It is correct and strict:
 * it throws when the engine does something that no real runtime supports.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { isDeepStrictEqual } from 'node:util';
import {
  type Capabilities,
  type CheckpointId,
  type CheckpointMode,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { Staging } from '../src/ports/checkpoint-store.ts';
import type { Image as ContainerImage } from '../src/ports/image.ts';
import type {
  AgentAddress,
  Captured,
  Instance,
  MemoryVerdict,
  Observation,
  Refusal,
  Runtime,
  SealedCheckpoint,
  Started,
  StartSpec,
  TemplateSpec,
  Warmth,
} from '../src/ports/runtime.ts';
import type { Files } from './virtual-files.ts';

interface Running {
  state: 'running' | 'frozen' | 'dead';
  files: Map<string, string>;
  counter: number;
  network: Network;
  /** The checkpoint that has the memory and the files of the frozen instance. */
  capturedFor: CheckpointId | null;
}

/** A frozen instance that the engine has given up and that stays in memory. */
interface Kept {
  readonly generation: number;
  readonly running: Running;
}

interface Image {
  readonly files: Record<string, string>;
  readonly counter: number | null;
}

export const diskFiles: Files = {
  put: (path, text) => writeFile(path, text),
  get: (path) => readFile(path, 'utf8').catch(() => undefined),
};

export interface MemoryRuntimeOptions {
  readonly name?: string;
  readonly files?: Files;
  readonly capabilities?: Partial<Capabilities>;
}

const FILES = 'image.json';
const MEMORY = 'memory.json';

export class MemoryRuntime implements Runtime {
  readonly name: string;
  readonly memoryEntries = [MEMORY];
  /** A test changes it to simulate an upgrade: memory images of another build cannot be used. */
  build = 'build-1';
  /** Whether the instance of a paused sandbox may stay in memory. False: every start reads its checkpoint. */
  keepsInstances = true;
  /** Reports a refused connection of an instance to the engine. */
  refuse: (instance: Instance, refusal: Refusal) => void = () => {};
  /** Reports to the engine that an instance has ended. */
  tellEnded: (instance: Instance) => void = () => {};
  readonly #files: Files;
  readonly #declared: Capabilities;
  readonly #instances = new Map<SandboxId, Map<number, Running>>();
  readonly #kept = new Map<SandboxId, Kept>();

  constructor(options: MemoryRuntimeOptions = {}) {
    this.name = options.name ?? 'memory';
    this.#files = options.files ?? diskFiles;
    this.#declared = {
      pause: 'memory',
      replayable: true,
      fork: true,
      snapshotWhileRunning: true,
      pty: false,
      isolated: true,
      customTemplates: true,
      ...options.capabilities,
    };
  }

  capabilities(): Capabilities {
    return this.#declared;
  }

  /**
   * An archive is a text, which becomes the only file of the root. Of an image the file has the bytes of all layers. With
   * services the counter is 1.
   */
  async prepareTemplate(
    spec: TemplateSpec,
    staging: Staging,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<Captured> {
    const { root, services } = spec;
    if (root.kind === 'builtin')
      return this.#write(staging, { files: { '/etc/motd': 'welcome' }, counter: null });
    await spec.progress('unpacking');
    const text =
      root.kind === 'image' ? await bytesOf(root.image, signal) : await readFile(root.path, 'utf8');
    if (text === 'hostile') throw new TorporError('invalid_request', 'The archive cannot be used.');
    return this.#write(staging, { files: { '/root': text }, counter: services.length > 0 ? 1 : null });
  }

  async start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: CheckpointMode,
    { network }: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    signal.throwIfAborted();
    const alive = [...this.#of(instance.sandboxId)].find(([, running]) => running.state !== 'dead');
    if (alive !== undefined)
      throw new Error(`Generation ${alive[0]} is still alive beside ${instance.generation}.`);
    const files = await this.#readFiles(from);
    const counter = mode === 'memory' && from.parts.memory ? await this.#readCounter(from) : null;
    // The caller that aborted may have destroyed the instance already: it must not be created after that.
    signal.throwIfAborted();
    if (mode === 'memory' && from.needs['build'] !== this.build) {
      throw new TorporError('checkpoint_incompatible', 'The checkpoint was made by another build.', {
        checkpointId: from.id,
      });
    }
    const started: Running = {
      state: 'running',
      files: new Map(Object.entries(files)),
      counter: counter ?? 0,
      network,
      capturedFor: null,
    };
    const isAdopted = this.#adopt(instance, from, counter === null ? null : started);
    this.#of(instance.sandboxId).set(instance.generation, started);
    if (counter === null) return { mode: 'files', lost: ['processes'] };
    return { mode: 'memory', lost: [], ...(isAdopted ? { adopted: true } : {}) };
  }

  async observe(instance: Instance): Promise<Observation> {
    const running = this.#of(instance.sandboxId).get(instance.generation);
    if (running === undefined) return { is: 'gone', files: false, why: 'there is no such instance' };
    if (running.state === 'dead') return { is: 'gone', files: true, why: 'its processes have ended' };
    return { is: running.state };
  }

  async agent(instance: Instance): Promise<AgentAddress> {
    throw new TorporError('unreachable', `${instance.sandboxId} has no agent: it is only a map.`);
  }

  async dial(): Promise<null> {
    return null;
  }

  /** Accepts every rule except `!`. */
  checkNetwork({ allow = [], deny = [] }: Network): void {
    if ([...allow, ...deny].includes('!'))
      throw new TorporError('invalid_request', 'Not a rule for the network: !.');
  }

  async setNetwork(instance: Instance, network: Network): Promise<void> {
    this.#alive(instance).network = network;
  }

  onRefusal(listener: (instance: Instance, refusal: Refusal) => void): void {
    this.refuse = listener;
  }

  onEnded(listener: (instance: Instance) => void): void {
    this.tellEnded = listener;
  }

  /** The network policy that the engine last set. */
  networkOf(instance: Instance): Network {
    return this.#alive(instance).network;
  }

  async presync(): Promise<void> {}

  async freeze(instance: Instance): Promise<void> {
    this.#keeps('files');
    this.#alive(instance).state = 'frozen';
  }

  async capture(instance: Instance, mode: CheckpointMode, staging: Staging): Promise<Captured> {
    this.#keeps(mode);
    const running = this.#alive(instance);
    if (running.state !== 'frozen') throw new Error('Only a frozen instance can be captured.');
    running.capturedFor = mode === 'memory' ? staging.checkpointId : null;
    return this.#write(staging, image(running, mode === 'memory'));
  }

  async thaw(instance: Instance): Promise<void> {
    const running = this.#alive(instance);
    running.state = 'running';
    running.capturedFor = null;
  }

  async recoverFiles(instance: Instance, staging: Staging): Promise<Captured> {
    const dead = this.#of(instance.sandboxId).get(instance.generation);
    if (dead === undefined) throw new TorporError('checkpoint_missing', 'No files of the instance are left.');
    if (dead.state !== 'dead') throw new Error('Only the files of a dead instance can be recovered.');
    return this.#write(staging, image(dead, false));
  }

  async destroy(upTo: Instance, _?: AbortSignal, keep?: CheckpointId): Promise<void> {
    const { sandboxId } = upTo;
    const generations = this.#of(sandboxId);
    const kept = this.#kept.get(sandboxId);
    if (kept !== undefined && kept.generation <= upTo.generation && kept.running.capturedFor !== keep)
      this.#kept.delete(sandboxId);
    for (const [generation, running] of [...generations]) {
      if (generation > upTo.generation) continue;
      generations.delete(generation);
      if (
        this.keepsInstances &&
        keep !== undefined &&
        running.state === 'frozen' &&
        running.capturedFor === keep
      )
        this.#kept.set(sandboxId, { generation, running });
    }
    if (generations.size === 0) this.#instances.delete(sandboxId);
  }

  warmth(sandboxId: SandboxId, checkpoint: CheckpointId): Warmth {
    if (!this.keepsInstances) return { warm: false, why: null };
    const frozen = [...(this.#instances.get(sandboxId)?.values() ?? [])];
    const kept = this.#kept.get(sandboxId)?.running;
    const warm = [...frozen, kept].some((running) => running?.capturedFor === checkpoint);
    return warm ? { warm } : { warm, why: null };
  }

  /**
   * A kept instance goes on (true), or ends. It must be what its checkpoint says: `restored` is what a restore would
   * give.
   */
  #adopt({ sandboxId }: Instance, from: SealedCheckpoint, restored: Running | null): boolean {
    const kept = this.#kept.get(sandboxId)?.running;
    this.#kept.delete(sandboxId);
    if (kept === undefined || restored === null || kept.capturedFor !== from.id) return false;
    const { files, counter } = image(kept, true);
    if (counter !== restored.counter || !isDeepStrictEqual(files, image(restored, true).files))
      throw new Error(`The instance that was kept for ${from.id} differs from it.`);
    restored.files = kept.files;
    return true;
  }

  async *list(): AsyncGenerator<Instance> {
    for (const [sandboxId, generations] of [...this.#instances]) {
      for (const generation of [...generations.keys()]) yield { sandboxId, generation };
    }
  }

  async checkUsable(checkpoint: SealedCheckpoint): Promise<MemoryVerdict> {
    await this.#readFiles(checkpoint);
    if (checkpoint.needs['build'] === this.build) return { usable: true };
    return { usable: false, why: `made by ${String(checkpoint.needs['build'])}` };
  }

  async verify(checkpoint: SealedCheckpoint): Promise<void> {
    await this.#readFiles(checkpoint);
  }

  async discard(_?: SealedCheckpoint): Promise<void> {}

  // Only tests call what follows: they act as the program in the sandbox, or cause an accident.

  /** The program in the sandbox writes a file and increments the counter. False when no instance runs. */
  work(sandboxId: SandboxId, path: string, text: string): boolean {
    for (const running of this.#of(sandboxId).values()) {
      if (running.state !== 'running') continue;
      running.files.set(path, text);
      running.counter++;
      return true;
    }
    return false;
  }

  look(
    sandboxId: SandboxId,
  ): { readonly files: Record<string, string>; readonly counter: number } | undefined {
    const newest = [...this.#of(sandboxId).entries()].sort(([a], [b]) => b - a)[0]?.[1];
    return newest === undefined
      ? undefined
      : { files: Object.fromEntries(newest.files), counter: newest.counter };
  }

  /** The processes of the sandbox die; with `forget` its files are lost too. */
  vanish(sandboxId: SandboxId, forget: boolean): void {
    this.#kept.delete(sandboxId);
    for (const [generation, running] of this.#of(sandboxId)) {
      if (forget) this.#of(sandboxId).delete(generation);
      else running.state = 'dead';
    }
  }

  /** The counter is null when the memory is missing or damaged. */
  async contents(checkpoint: SealedCheckpoint): Promise<Image> {
    const counter = await this.#readCounter(checkpoint).catch(() => null);
    return { files: await this.#readFiles(checkpoint), counter };
  }

  #of(id: SandboxId): Map<number, Running> {
    const known = this.#instances.get(id) ?? new Map<number, Running>();
    this.#instances.set(id, known);
    return known;
  }

  #alive(instance: Instance): Running {
    const running = this.#of(instance.sandboxId).get(instance.generation);
    if (running === undefined || running.state === 'dead') {
      throw new TorporError(
        'unreachable',
        `Generation ${instance.generation} of ${instance.sandboxId} is not alive.`,
      );
    }
    return running;
  }

  #keeps(mode: CheckpointMode): void {
    const { pause } = this.#declared;
    if (pause === 'memory' || pause === mode) return;
    throw new TorporError(
      'capability_unsupported',
      `The runtime "${this.name}" keeps no ${mode} over a pause.`,
    );
  }

  async #write(staging: Staging, { files, counter }: Image): Promise<Captured> {
    // Pairs, because V8's JSON.parse may take one escaped key for another (see docs/architecture.md).
    await this.#files.put(`${staging.path}/${FILES}`, JSON.stringify(Object.entries(files)));
    if (counter !== null) await this.#files.put(`${staging.path}/${MEMORY}`, JSON.stringify(counter));
    return {
      parts: { files: true, memory: counter !== null },
      needs: { build: this.build },
      dependsOn: [],
      external: null,
    };
  }

  async #readFiles(checkpoint: SealedCheckpoint): Promise<Record<string, string>> {
    return Object.fromEntries((await this.#read(checkpoint, FILES)) as [string, string][]);
  }

  async #readCounter(checkpoint: SealedCheckpoint): Promise<number> {
    return (await this.#read(checkpoint, MEMORY)) as number;
  }

  async #read(checkpoint: SealedCheckpoint, name: string): Promise<unknown> {
    const text = await this.#files.get(`${checkpoint.path}/${name}`);
    const about = { checkpointId: checkpoint.id };
    if (text === undefined)
      throw new TorporError('checkpoint_missing', `${checkpoint.id} has no ${name}.`, about);
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new TorporError('checkpoint_corrupt', `${name} of ${checkpoint.id} is damaged.`, {
        ...about,
        cause,
      });
    }
  }
}

function image(running: Running, memory: boolean): Image {
  return { files: Object.fromEntries(running.files), counter: memory ? running.counter : null };
}

/** A runtime that can only run sandboxes, and declares so. */
export function runtimeWithoutPause(options: MemoryRuntimeOptions = {}): MemoryRuntime {
  return new MemoryRuntime({
    name: 'pods',
    ...options,
    capabilities: { pause: 'none', fork: false, snapshotWhileRunning: false, ...options.capabilities },
  });
}

async function bytesOf({ layers }: ContainerImage, signal: AbortSignal): Promise<string> {
  const bytes: Buffer[] = [];
  for (const layer of layers) bytes.push(await buffer(layer.read(signal, () => {})));
  return Buffer.concat(bytes).toString('latin1');
}
