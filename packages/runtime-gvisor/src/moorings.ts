/**
 * A few moorings made ahead, for whoever starts next and has no container waiting. They are for `base` as it is now, belong
 * to no checkpoint and take next to no memory; making one is mostly waiting for the kernel.
 */
import { clearBerth, layOut, type Mooring, newBerth, type Stack } from './berth.ts';
import type { Ground } from './ground.ts';
import { pathsIn } from './instance-files.ts';
import type { PoisedRestore } from './runsc.ts';

const MOST = 2;

interface Ready extends Mooring {
  readonly poised: PoisedRestore;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | undefined;
  readonly runsc: string;
}

type Fit = Pick<Stack, 'tools' | 'system' | 'binary'>;

export class Moorings {
  readonly #ground: Ground;
  readonly #most: number;
  #ready: Ready[] = [];
  #making: Promise<void> | undefined;
  readonly #closing = new AbortController();

  constructor(ground: Ground, most = MOST) {
    this.#ground = ground;
    this.#most = most;
  }

  /** One that fits, if there is one; from here on it is the caller's. */
  take(stack: Stack): Mooring | undefined {
    const found = stack.root === 'base' ? this.#ready.findIndex((one) => fits(one, stack)) : -1;
    return found < 0 ? undefined : this.#ready.splice(found, 1)[0];
  }

  /** When nobody waits for anything. Returns at once. */
  refill(): void {
    if (this.#closing.signal.aborted) return;
    this.#making ??= this.#makeAll()
      .catch((error: unknown) => {
        if (!this.#closing.signal.aborted)
          this.#ground.report('a mooring could not be made ahead', { error });
      })
      .finally(() => {
        this.#making = undefined;
      });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#making;
    for (const one of this.#ready.splice(0)) await this.#clear(one);
  }

  async #makeAll(): Promise<void> {
    const { tools, base, binaries } = this.#ground;
    const stack = { tools, system: await base.current(), binary: binaries.current };
    const useless = this.#ready.filter((one) => !fits(one, stack));
    this.#ready = this.#ready.filter((one) => !useless.includes(one));
    for (const one of useless) await this.#clear(one);
    while (this.#ready.length < this.#most) this.#ready.push(await this.#make(stack));
  }

  async #make(stack: Fit): Promise<Ready> {
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const { name, directory } = newBerth(this.#ground);
    const paths = pathsIn(directory);
    try {
      const order = { name, paths, stack, hostname: 'sandbox' };
      const mooring = await layOut(this.#ground, order, signal);
      const poised = await this.#ground.runsc.poise(mooring.container);
      const { tools, system, binary } = stack;
      const made = { tools: tools.fingerprint, system: system?.fingerprint, runsc: binary.digest };
      return { ...mooring, poised, directory, ...made };
    } catch (thrown) {
      await clearBerth(this.#ground, { name, ...paths }, new AbortController().signal);
      throw thrown;
    }
  }

  async #clear({ container, rootfs, directory }: Ready): Promise<void> {
    const { id: name, bundle } = container;
    await clearBerth(this.#ground, { name, bundle, rootfs, directory }, new AbortController().signal);
  }
}

function fits(one: Ready, { tools, system, binary }: Fit): boolean {
  const isSame = one.tools === tools.fingerprint && one.system === system?.fingerprint;
  return isSame && one.runsc === binary.digest && one.poised.isWaiting;
}
