/** The labels by which a server finds its own objects again. Two servers never touch each other's: each has its `home`. */
import type { Instance } from '@torpor/engine';
import { bareSandboxId, isId, type SandboxId } from '@torpor/protocol';
import type { Metadata } from './resources.ts';

export const HOME_LABEL = 'torpor.dev/home';
const SANDBOX_LABEL = 'torpor.dev/sandbox';
const GENERATION_LABEL = 'torpor.dev/generation';

export function labelsOf(home: string, { sandboxId, generation }: Instance): Record<string, string> {
  return {
    [HOME_LABEL]: home,
    [SANDBOX_LABEL]: bareSandboxId(sandboxId),
    [GENERATION_LABEL]: String(generation),
  };
}

/** A merge patch that takes the instance off an object. */
export const NO_INSTANCE = { [SANDBOX_LABEL]: null, [GENERATION_LABEL]: null } as const;

export function selectorOf(home: string, sandboxId?: SandboxId): string {
  const own = `${HOME_LABEL}=${home}`;
  return sandboxId === undefined ? own : `${own},${SANDBOX_LABEL}=${bareSandboxId(sandboxId)}`;
}

/** Undefined when the object belongs to no instance. */
export function instanceOf({ labels = {} }: Metadata): Instance | undefined {
  const sandboxId = `sbx_${labels[SANDBOX_LABEL] ?? ''}`;
  const generation = Number(labels[GENERATION_LABEL]);
  return isId('sbx', sandboxId) && Number.isSafeInteger(generation) ? { sandboxId, generation } : undefined;
}

/** Carries the generation, so that a server that lost its fence can only name an object of its own start. */
export function objectName({ sandboxId, generation }: Instance): string {
  return `sbx-${bareSandboxId(sandboxId)}-${generation}`;
}
