/** The secrets of organisations, which the egress of a runtime puts into requests of sandboxes. */
import type { SandboxId } from '@torpor/protocol';

/** A secret with its value. It must not be written anywhere, and not be sent to anything but its host. */
export interface UsableSecret {
  readonly name: string;
  /** A name, or `*.` and a name, with an optional port. */
  readonly host: string;
  readonly header: string;
  /** Null: all methods. */
  readonly methods: readonly string[] | null;
  /** Null: all paths. */
  readonly path: string | null;
  /** The content of the header, with its prefix. */
  readonly content: string;
}

/** Asked for every request that may get a secret, so that a changed or deleted secret is used no more at once. */
export interface SecretSource {
  /** Those of these secrets that exist in the organisation of the sandbox. */
  find(sandboxId: SandboxId, names: readonly string[]): Promise<readonly UsableSecret[]>;
}

/** What the engine asks before it accepts a network that names secrets. */
export interface SecretNames {
  /** Those of the names that the organisation has no secret for. */
  missing(org: string, names: readonly string[]): Promise<readonly string[]>;
}
