/**
 * Steps in order. A step that changes files has a key: a digest of the key before it and of everything that the step
 * depends on. The checkpoint after a step has the key as its name. A step whose checkpoint exists is not run; the first one
 * without a checkpoint starts a sandbox from the checkpoint before it.
 */
import { createHash } from 'node:crypto';
import type { Resources } from '@torpor/protocol';
import type { Placement } from './placement.ts';
import type { RunningSandbox, StepCommand, StepOrigin, StepSandboxes } from './step-sandboxes.ts';

/** Where a chain begins, or how far it is. */
export interface ChainPosition {
  readonly at: StepOrigin;
  /** Identifies the files at this point. */
  readonly key: string;
}

export interface StepChainParts {
  readonly sandboxes: StepSandboxes;
  readonly useCache: boolean;
  /** The limits of the sandboxes. They do not change what is in the cache. */
  readonly resources: Resources;
  /** The error for a command of a step that ended with another exit code than 0. */
  failure(exitCode: number, sandbox: RunningSandbox): Error;
}

interface Step {
  /** Everything that the result of the step depends on, besides the steps before it. */
  readonly dependsOn: readonly unknown[];
  /** Runs the step, and all behind it, even if their checkpoints exist. */
  readonly force?: boolean | undefined;
  onCached(): void;
  onRun(): void;
  /** Another sandbox for the step. Absent: the sandbox of the step before it, or a new one from its checkpoint. */
  open?(): Promise<RunningSandbox>;
  work(sandbox: RunningSandbox): Promise<void>;
}

export class StepChain {
  readonly #parts: StepChainParts;
  #useCache: boolean;
  #position: ChainPosition;
  #sandbox: RunningSandbox | undefined;

  constructor(parts: StepChainParts, start: ChainPosition) {
    this.#parts = parts;
    this.#useCache = parts.useCache;
    this.#position = start;
  }

  get position(): ChainPosition {
    return this.#position;
  }

  /** Runs the step, unless its checkpoint exists, and seals a checkpoint of it. */
  async step({ dependsOn, force = false, onCached, onRun, open, work }: Step): Promise<void> {
    const { sandboxes } = this.#parts;
    if (force) this.#useCache = false;
    const key = createHash('sha256')
      .update(JSON.stringify([this.#position.key, ...dependsOn]))
      .digest('hex');
    const name = `build-${key.slice(0, 40)}`;
    const known = this.#useCache ? await sandboxes.findStep(name) : undefined;
    if (known !== undefined) {
      onCached();
      await this.close();
      this.#position = { at: { from: known }, key };
      return;
    }
    onRun();
    if (open !== undefined) {
      await this.close();
      this.#sandbox = await open();
    }
    const sandbox = await this.open();
    await work(sandbox);
    this.#position = { at: { from: await sandboxes.seal(sandbox, name) }, key };
  }

  /** The sandbox of the chain runs on from step to step. */
  async open(): Promise<RunningSandbox> {
    const { sandboxes, resources } = this.#parts;
    this.#sandbox ??= await sandboxes.create(this.#position.at, resources);
    return this.#sandbox;
  }

  async run(sandbox: RunningSandbox, command: StepCommand): Promise<void> {
    const exitCode = await this.#parts.sandboxes.run(sandbox, command);
    if (exitCode !== 0) throw this.#parts.failure(exitCode, sandbox);
  }

  /** Puts files into the sandbox of a step. */
  async place(sandbox: RunningSandbox, { archive, command, content }: Placement): Promise<void> {
    await this.#parts.sandboxes.write(sandbox, archive, content());
    await this.run(sandbox, { command, user: 'root', cwd: '/' });
  }

  /** The name of the account with this user id; undefined when there is none. Commands run as users with names. */
  async accountOf(sandbox: RunningSandbox, userId: string): Promise<string | undefined> {
    const passwd = Buffer.from(await this.#parts.sandboxes.read(sandbox, '/etc/passwd')).toString();
    const found = passwd.split('\n').find((account) => account.split(':')[2] === userId);
    return found?.split(':')[0];
  }

  /** Ends the sandbox of the chain. */
  async close(): Promise<void> {
    const sandbox = this.#sandbox;
    this.#sandbox = undefined;
    if (sandbox !== undefined) await this.#parts.sandboxes.kill(sandbox);
  }

  /** Leaves the sandbox of a failed step to its user. */
  abandon(): void {
    this.#sandbox = undefined;
  }
}
