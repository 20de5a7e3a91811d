/** A runtime as the contract suite holds it: with a store, a program inside, and the accidents from outside. */
import { randomBytes } from 'node:crypto';
import { type Capabilities, type CheckpointId, makeId, type SandboxId } from '@torpor/protocol';
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
import { builtInOrder } from '../src/templates/built-in.ts';
import { failureOf } from './failure-of.ts';

export { builtInOrder, failureOf };

export interface RuntimeUnderTest {
  readonly runtime: Runtime;
  readonly store: CheckpointStore;
  readonly program: Program;
  /** A template that is made already, where making one takes long. Absent: one is made for each test. */
  sharedTemplate?(): Promise<SealedCheckpoint>;
  /** Its processes die from outside; what it had written stays. */
  kill(instance: Instance): Promise<void>;
  /** Its processes die and what it had written goes with them. */
  wipe(instance: Instance): Promise<void>;
  /** What a bad disk, or whoever else keeps it, does to the content of a sealed checkpoint. */
  damage(checkpoint: SealedCheckpoint, how: Damage): Promise<void>;
  /**
   * Ways in which only the memory of a sealed checkpoint is damaged, by what is done to it. Absent where memory
   * cannot be told from the rest, because somebody else keeps it or there is none.
   */
  readonly memoryDamages?: Readonly<Record<string, (checkpoint: SealedCheckpoint) => Promise<void>>>;
  /** What can happen to one; without, both can. */
  readonly damages?: readonly Damage[];
  /** The runtime of a server that was restarted. Absent where the instances live in the runtime's own memory. */
  reopen?(): Promise<Runtime>;
  /** Removes everything, and throws when an instance or anything else of the runtime is left. */
  dispose(): Promise<void>;
}

export type Damage = 'missing' | 'corrupt';

/** The program inside an instance. */
export interface Program {
  /** False when it did not get to do it, because it does not run. */
  write(instance: Instance, path: string, text: string): Promise<boolean>;
  /** Undefined when there is no such file. Only a running instance is asked. */
  read(instance: Instance, path: string): Promise<string | undefined>;
  remove?(instance: Instance, path: string): Promise<void>;
  /** Something that lives in memory only and grows with every write. */
  counter?(instance: Instance): Promise<number>;
  /** Resolves when a process of the instance listens on the port. */
  listen?(instance: Instance, port: number): Promise<void>;
}

export const NO_SPEC: StartSpec = { env: {}, services: [], network: {}, resources: {} };

/** For calls that nobody stops. */
export const unhurried: AbortSignal = new AbortController().signal;

export function newInstance(generation = 1): Instance {
  return { sandboxId: makeId('sbx', randomBytes) as SandboxId, generation };
}

export function nextOf({ sandboxId, generation }: Instance): Instance {
  return { sandboxId, generation: generation + 1 };
}

/** What a test of the contract works with. Both are new for each test. */
export class RuntimeBench {
  subject!: RuntimeUnderTest;
  template!: SealedCheckpoint;
  /** Tests that were asked for and are not there. */
  readonly unknown: Set<string>;
  readonly #only: ReadonlySet<string> | undefined;

  constructor(only?: readonly string[]) {
    this.#only = only === undefined ? undefined : new Set(only);
    this.unknown = new Set(only);
  }

  /** A test, which is run if it is one of those that are wanted. */
  readonly it = (name: string, test: TestFunction): void => {
    this.unknown.delete(name);
    declare.skipIf(this.#only?.has(name) === false)(name, test);
  };

  get can(): Capabilities {
    return this.subject.runtime.capabilities();
  }

  /** An instance that runs; a new one from the template, by the quickest way, unless told otherwise. */
  async started(
    from = this.template,
    use: 'memory' | 'files' = from === this.template && from.parts.memory ? 'memory' : 'files',
    instance = newInstance(),
  ): Promise<Instance> {
    await startFrom(this.subject, instance, from, use);
    return instance;
  }

  observed(instance: Instance, runtime: Runtime = this.subject.runtime): Promise<Observation> {
    return runtime.observe(instance, unhurried);
  }
}

type Ground = Pick<RuntimeUnderTest, 'runtime' | 'store'>;

/** What the engine does with a capture: stages, lets it be filled, seals. */
export async function sealing(
  { runtime, store }: Ground,
  fill: (staging: Staging) => Promise<Captured>,
): Promise<SealedCheckpoint> {
  const id: CheckpointId = makeId('ckpt', randomBytes);
  const staging = await store.stage(id);
  const { parts, needs, external } = await fill(staging);
  if (external !== null) return { id, parts, needs, path: null };
  const about = { sandboxId: null, parentId: null, runtime: runtime.name, createdAt: 1_700_000_000_000 };
  const { manifest } = await store.seal(staging, { checkpointId: id, ...about, parts, needs });
  return { id, parts, needs: manifest.needs, path: store.path(id) };
}

export function templateOf(ground: Ground): Promise<SealedCheckpoint> {
  return sealing(ground, (staging) =>
    ground.runtime.prepareTemplate(builtInOrder('base'), staging, unhurried),
  );
}

/** Freezes and seals; the instance stays frozen. */
export async function sealed(
  ground: Ground,
  instance: Instance,
  mode: 'memory' | 'files' = 'files',
  purpose: FreezePurpose = 'pause',
): Promise<SealedCheckpoint> {
  await ground.runtime.presync(instance, unhurried);
  await ground.runtime.freeze(instance, unhurried, purpose);
  return sealing(ground, (staging) => ground.runtime.capture(instance, mode, staging, unhurried));
}

/** Seals and ends it, as a pause does. */
export async function paused(
  ground: Ground,
  instance: Instance,
  mode: 'memory' | 'files' = 'files',
): Promise<SealedCheckpoint> {
  const checkpoint = await sealed(ground, instance, mode);
  await ground.runtime.destroy(instance, unhurried);
  return checkpoint;
}

/** Seals and lets it go on, as a snapshot in place does. */
export async function snapshotted(
  ground: Ground,
  instance: Instance,
  mode: 'memory' | 'files' = 'files',
): Promise<SealedCheckpoint> {
  const checkpoint = await sealed(ground, instance, mode, 'snapshot');
  await ground.runtime.thaw(instance, checkpoint.id, unhurried);
  return checkpoint;
}

/** What a checkpoint is made of, to be compared; one that is kept elsewhere is asked for there. */
export async function contentOf({ runtime, store }: Ground, checkpoint: SealedCheckpoint): Promise<unknown> {
  if (checkpoint.path !== null) return store.verify(checkpoint.id);
  return runtime.verify(checkpoint, unhurried);
}

export function startFrom(
  { runtime }: Ground,
  instance: Instance,
  checkpoint: SealedCheckpoint,
  use: 'memory' | 'files' = 'files',
  spec: StartSpec = NO_SPEC,
): Promise<Started> {
  return runtime.start(instance, checkpoint, use, spec, unhurried);
}

export async function listedInstances(runtime: Runtime): Promise<Instance[]> {
  const all: Instance[] = [];
  for await (const { sandboxId, generation } of runtime.list(unhurried)) all.push({ sandboxId, generation });
  const name = (instance: Instance) => `${instance.sandboxId}/${instance.generation}`;
  return all.sort((a, b) => name(a).localeCompare(name(b)));
}
