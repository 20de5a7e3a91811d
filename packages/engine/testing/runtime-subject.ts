/** What the contract suite needs of a runtime: a store, a program in the instance, and ways to damage it from outside. */
import { randomBytes } from 'node:crypto';
import {
  type Capabilities,
  type CheckpointId,
  type CheckpointMode,
  makeId,
  type SandboxId,
} from '@torpor/protocol';
import { it as declare, type TestFunction } from 'vitest';
import type { CheckpointStore, Staging } from '../src/ports/checkpoint-store.ts';
import type {
  Captured,
  FreezePurpose,
  Instance,
  Observation,
  Runtime,
  SealedCheckpoint,
  Started,
  StartSpec,
} from '../src/ports/runtime.ts';
import { builtInSpec } from '../src/templates/built-in.ts';
import { failureOf } from './failure-of.ts';

export { builtInSpec, failureOf };

export interface RuntimeUnderTest {
  readonly runtime: Runtime;
  readonly store: CheckpointStore;
  readonly program: Program;
  /** A template that exists already, where preparing one takes long. Absent: each test prepares one. */
  sharedTemplate?(): Promise<SealedCheckpoint>;
  /** Kills the processes of the instance; its files stay. */
  kill(instance: Instance): Promise<void>;
  /** Kills the processes of the instance and removes its files. */
  wipe(instance: Instance): Promise<void>;
  /** Damages the content of a sealed checkpoint, like a failing disk or a provider. */
  damage(checkpoint: SealedCheckpoint, how: Damage): Promise<void>;
  /**
   * Ways to damage only the memory of a sealed checkpoint, by name. Absent where the memory is not separate, because a
   * provider keeps it or there is none.
   */
  readonly memoryDamages?: Readonly<Record<string, (checkpoint: SealedCheckpoint) => Promise<void>>>;
  /** The kinds of damage that are possible; absent: both. */
  readonly damages?: readonly Damage[];
  /** The runtime of a server that was restarted. Absent where the instances live in the runtime's own memory. */
  reopen?(): Promise<Runtime>;
  /** Removes everything, and throws when an instance or another resource of the runtime is left. */
  dispose(): Promise<void>;
}

export type Damage = 'missing' | 'corrupt';

/** The program in an instance. */
export interface Program {
  /** False when the program could not write, because it does not run. */
  write(instance: Instance, path: string, text: string): Promise<boolean>;
  /** Undefined when there is no such file. Called only for a running instance. */
  read(instance: Instance, path: string): Promise<string | undefined>;
  remove?(instance: Instance, path: string): Promise<void>;
  /** A counter that exists only in memory and grows with every write. */
  counter?(instance: Instance): Promise<number>;
  /** Resolves when a process of the instance listens on the port. */
  listen?(instance: Instance, port: number): Promise<void>;
}

export const NO_SPEC: StartSpec = { org: 'default', env: {}, services: [], network: {}, resources: {} };

/** A signal that never fires. */
export const unhurried: AbortSignal = new AbortController().signal;

export function newInstance(generation = 1): Instance {
  return { sandboxId: makeId('sbx', randomBytes) as SandboxId, generation };
}

export function nextOf({ sandboxId, generation }: Instance): Instance {
  return { sandboxId, generation: generation + 1 };
}

/** The runtime under test and its template, both new for each test, and the selection of tests. */
export class ContractFixture {
  subject!: RuntimeUnderTest;
  template!: SealedCheckpoint;
  /** Selected tests that do not exist. */
  readonly unknown: Set<string>;
  readonly #only: ReadonlySet<string> | undefined;

  constructor(only?: readonly string[]) {
    this.#only = only === undefined ? undefined : new Set(only);
    this.unknown = new Set(only);
  }

  /** Declares a test, which is skipped unless it is selected. */
  readonly it = (name: string, test: TestFunction): void => {
    this.unknown.delete(name);
    declare.skipIf(this.#only?.has(name) === false)(name, test);
  };

  get can(): Capabilities {
    return this.subject.runtime.capabilities();
  }

  /** Whether the files of an instance must survive its end. */
  get keepsFiles(): boolean {
    return this.can.pause !== 'none';
  }

  /** A runtime that cannot pause may still have the files of a dead instance. */
  get filesOfTheDead(): { readonly files?: true } {
    return this.keepsFiles ? { files: true } : {};
  }

  /** Starts an instance; by default a new one from the template, with memory if the template has it. */
  async started(
    from = this.template,
    mode: CheckpointMode = from === this.template && from.parts.memory ? 'memory' : 'files',
    instance = newInstance(),
  ): Promise<Instance> {
    await startFrom(this.subject, instance, from, mode);
    return instance;
  }

  observed(instance: Instance, runtime: Runtime = this.subject.runtime): Promise<Observation> {
    return runtime.observe(instance, unhurried);
  }
}

type RuntimeAndStore = Pick<RuntimeUnderTest, 'runtime' | 'store'>;

/** Stages, fills and seals a checkpoint, as the engine does. */
export async function sealing(
  { runtime, store }: RuntimeAndStore,
  fill: (staging: Staging) => Promise<Captured>,
): Promise<SealedCheckpoint> {
  const id: CheckpointId = makeId('ckpt', randomBytes);
  const staging = await store.stage(id);
  const { parts, needs, external, contents = [] } = await fill(staging);
  if (external !== null) return { id, parts, needs, path: null };
  const about = { sandboxId: null, parentId: null, runtime: runtime.name, createdAt: 1_700_000_000_000 };
  const { manifest } = await store.seal(staging, { checkpointId: id, ...about, parts, needs, contents });
  return { id, parts, needs: manifest.needs, path: store.path(id) };
}

export function templateOf(subject: RuntimeAndStore): Promise<SealedCheckpoint> {
  return sealing(subject, (staging) =>
    subject.runtime.prepareTemplate(builtInSpec('base'), staging, unhurried),
  );
}

/** Freezes the instance and seals a checkpoint of it; the instance stays frozen. */
export async function sealed(
  subject: RuntimeAndStore,
  instance: Instance,
  mode: CheckpointMode = 'files',
  purpose: FreezePurpose = 'pause',
): Promise<SealedCheckpoint> {
  await subject.runtime.presync(instance, unhurried);
  await subject.runtime.freeze(instance, unhurried, purpose);
  return sealing(subject, (staging) => subject.runtime.capture(instance, mode, staging, unhurried));
}

/** Seals a checkpoint and destroys the instance, as a pause does. */
export async function paused(
  subject: RuntimeAndStore,
  instance: Instance,
  mode: CheckpointMode = 'files',
): Promise<SealedCheckpoint> {
  const checkpoint = await sealed(subject, instance, mode);
  await subject.runtime.destroy(instance, unhurried);
  return checkpoint;
}

/** Seals a checkpoint and lets the instance run on, as a snapshot does. */
export async function snapshotted(
  subject: RuntimeAndStore,
  instance: Instance,
  mode: CheckpointMode = 'files',
): Promise<SealedCheckpoint> {
  const checkpoint = await sealed(subject, instance, mode, 'snapshot');
  await subject.runtime.thaw(instance, checkpoint.id, unhurried);
  return checkpoint;
}

/** The content of a checkpoint, for comparisons; for an external checkpoint, the result of the runtime's `verify`. */
export async function contentOf(
  { runtime, store }: RuntimeAndStore,
  checkpoint: SealedCheckpoint,
): Promise<unknown> {
  if (checkpoint.path !== null) return store.verify(checkpoint.id);
  return runtime.verify(checkpoint, unhurried);
}

export function startFrom(
  { runtime }: RuntimeAndStore,
  instance: Instance,
  checkpoint: SealedCheckpoint,
  mode: CheckpointMode = 'files',
  spec: StartSpec = NO_SPEC,
): Promise<Started> {
  return runtime.start(instance, checkpoint, mode, spec, unhurried);
}

export async function listedInstances(runtime: Runtime): Promise<Instance[]> {
  const all: Instance[] = [];
  for await (const { sandboxId, generation } of runtime.list(unhurried)) all.push({ sandboxId, generation });
  const name = (instance: Instance) => `${instance.sandboxId}/${instance.generation}`;
  return all.sort((a, b) => name(a).localeCompare(name(b)));
}
