/** One part of the program. */
import type * as E2b from 'e2b';

export type Package = typeof E2b;

export interface Scene {
  readonly e2b: Package;
  readonly sandbox: E2b.Sandbox;
}

export type Chapter = (scene: Scene) => Promise<void>;

/** Polls until the condition holds, because there are no events for it. */
export async function until(holds: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (let tries = 0; tries < 600; tries++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`It did not come to be: ${what}.`);
}
