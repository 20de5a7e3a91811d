/**
 * Makes the root of `base` while a server runs: once per host in the background, and again when an operator wants its
 * updates. After a failure the server goes on with what it has.
 */
import { buildBase, findMachineBase, type MachineBase, obstacleToBase } from './build-base.mjs';

export interface BaseMakerOptions {
  /** The Node program for guests. */
  readonly node: string;
  /** A mirror of Debian. */
  readonly mirror?: string | undefined;
  /** Called with the phase of a build, and with null when it has ended. */
  onPhase(phase: string | null): void;
  /** Called when there is a new root: templates can use it from now on. */
  onMade(): void;
  readonly report: (what: string, details: Readonly<Record<string, unknown>>) => void;
  readonly build?: typeof buildBase;
  readonly machineWide?: string;
}

export class BaseMaker {
  readonly #options: BaseMakerOptions;
  readonly #stopping = new AbortController();
  #building: Promise<void> | undefined;

  constructor(options: BaseMakerOptions) {
    this.#options = options;
  }

  /** Why no root can be made on this host, as text; undefined when one can. */
  obstacle(): string | undefined {
    return this.#options.build === undefined ? obstacleToBase(this.#options.machineWide) : undefined;
  }

  /** Makes the root unless this host has one. Returns at once. */
  ensure(): void {
    if (findMachineBase(this.#options.machineWide) !== undefined) return;
    const obstacle = this.obstacle();
    if (obstacle === undefined) this.#begin(false);
    else this.#options.report('"base" stays a view of this host', { because: obstacle });
  }

  /** Makes a new root with the updates of its packages. Returns at once; a build that runs already is enough. */
  rebuild(): void {
    this.#begin(true);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#building;
  }

  #begin(again: boolean): void {
    if (this.#stopping.signal.aborted) return;
    this.#building ??= this.#make(again)
      .catch((error: unknown) => {
        this.#options.onPhase(null);
        if (!this.#stopping.signal.aborted)
          this.#options.report('a root for "base" could not be made', { error });
      })
      .finally(() => {
        this.#building = undefined;
      });
  }

  async #make(again: boolean): Promise<void> {
    const { node, mirror, machineWide, onPhase, onMade, report, build = buildBase } = this.#options;
    report('a root for "base" is being made', {});
    const made: MachineBase = await build({
      node,
      again,
      ...(mirror === undefined ? {} : { mirror }),
      ...(machineWide === undefined ? {} : { machineWide }),
      onProgress: (phase) => onPhase(`making its own root: ${phase}`),
      signal: this.#stopping.signal,
    });
    report('a root for "base" was made; new sandboxes will use it', { digest: made.digest });
    onPhase(null);
    onMade();
  }
}
