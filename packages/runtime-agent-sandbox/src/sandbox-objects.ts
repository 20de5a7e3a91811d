/** The Sandbox resources of this server: made, found, changed, waited for and deleted. */
import type { Instance } from '@torpor/engine';
import {
  instanceOf,
  isAbsent,
  isConflict,
  type List,
  nextLookMs,
  type PodWorld,
  selectorOf,
} from '@torpor/pods';
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import { GROUP, type Mode, modeSpec, ServedVersion } from './api-version.ts';
import { CHECKPOINT_LABEL, readyText, type SandboxObject } from './sandbox-object.ts';

/** The volume of the home directory, in the pod and in the claim. */
export const VOLUME = 'home';

export class SandboxObjects {
  readonly #world: PodWorld;
  readonly #version: ServedVersion;

  constructor(world: PodWorld) {
    this.#world = world;
    this.#version = new ServedVersion(world.cluster);
  }

  async findByName(name: string, signal: AbortSignal): Promise<SandboxObject | undefined> {
    try {
      const path = `${await this.#path(signal)}/${name}`;
      return await this.#world.cluster.get<SandboxObject>(path, { what: 'show the Sandbox', signal });
    } catch (thrown) {
      if (isAbsent(thrown)) return undefined;
      throw thrown;
    }
  }

  async list(labelSelector: string, signal: AbortSignal): Promise<readonly SandboxObject[]> {
    const ask = { what: 'list the Sandboxes', query: { labelSelector }, signal };
    return (await this.#world.cluster.get<List<SandboxObject>>(await this.#path(signal), ask)).items;
  }

  /**
   * The object that the instance runs on; undefined when the cluster says that there is none. A list waits until the cache of
   * the API server is as new as the request, so the object is looked for by its likely name first.
   */
  async find(
    { sandboxId, generation }: Instance,
    signal: AbortSignal,
    likelyName?: string,
  ): Promise<SandboxObject | undefined> {
    const likely = likelyName === undefined ? undefined : await this.findByName(likelyName, signal);
    const user = likely === undefined ? undefined : instanceOf(likely.metadata);
    if (user?.sandboxId === sandboxId && user.generation === generation) return likely;
    return (await this.ofSandbox(sandboxId, signal)).find(
      ({ metadata }) => instanceOf(metadata)?.generation === generation,
    );
  }

  ofSandbox(sandboxId: SandboxId, signal: AbortSignal): Promise<readonly SandboxObject[]> {
    return this.list(selectorOf(this.#world.home, sandboxId), signal);
  }

  async findByCheckpoint(id: CheckpointId, signal: AbortSignal): Promise<SandboxObject | undefined> {
    const selector = `${selectorOf(this.#world.home)},${CHECKPOINT_LABEL}=${checkpointLabel(id)}`;
    return (await this.list(selector, signal))[0];
  }

  /** May be repeated for one start: the name has the generation. */
  async create(name: string, metadata: object, spec: object, signal: AbortSignal): Promise<SandboxObject> {
    const version = await this.#version.get(signal);
    const body = {
      apiVersion: `${GROUP}/${version}`,
      kind: 'Sandbox',
      metadata: { name, ...metadata },
      spec: { ...modeSpec(version, 'Running'), shutdownPolicy: 'Retain', ...spec },
    };
    try {
      const path = await this.#path(signal);
      return await this.#world.cluster.create<SandboxObject>(path, {
        what: 'create the Sandbox',
        body,
        signal,
      });
    } catch (thrown) {
      const found = isConflict(thrown) ? await this.findByName(name, signal) : undefined;
      if (found === undefined) throw thrown;
      return found;
    }
  }

  /** Changes metadata, and the spec if a mode is given. */
  async change(
    name: string,
    change: { readonly metadata?: object; readonly mode?: Mode; readonly spec?: object },
    signal: AbortSignal,
  ): Promise<SandboxObject> {
    const { metadata, mode, spec } = change;
    const version = await this.#version.get(signal);
    const wanted = mode === undefined ? spec : { ...spec, ...modeSpec(version, mode) };
    const body = {
      ...(metadata === undefined ? {} : { metadata }),
      ...(wanted === undefined ? {} : { spec: wanted }),
    };
    const path = `${await this.#path(signal)}/${name}`;
    return this.#world.cluster.patch<SandboxObject>(path, { what: 'change the Sandbox', body, signal });
  }

  /** Deletes the object and with it its pod and its volume. Resolves when the cluster says that it is gone. */
  async remove(name: string, signal: AbortSignal): Promise<void> {
    try {
      const body = { propagationPolicy: 'Foreground' };
      const path = `${await this.#path(signal)}/${name}`;
      await this.#world.cluster.remove(path, { what: 'delete the Sandbox', body, signal });
    } catch (thrown) {
      if (!isAbsent(thrown)) throw thrown;
    }
    await this.until(name, (object) => object === undefined, 'gone', signal);
  }

  /** Looks at the object until it is as wanted, or the deadline of the settings has passed. */
  async until(
    name: string,
    isAsWanted: (object: SandboxObject | undefined) => boolean | Promise<boolean>,
    what: string,
    signal: AbortSignal,
  ): Promise<SandboxObject | undefined> {
    const { clock, settings, watch } = this.#world;
    let quietSince = clock.monotonic();
    const deadline = quietSince + settings.agentSandboxMs;
    for (;;) {
      const changed = watch.changeOf(name, nextLookMs(clock.monotonic() - quietSince), signal);
      changed.catch(() => {});
      const object = await this.findByName(name, signal);
      if (await isAsWanted(object)) return object;
      if (clock.monotonic() > deadline) throw tooLate(name, what, object, settings.agentSandboxMs);
      // The controller writes soon after a change of the pod.
      if (await changed) quietSince = clock.monotonic();
    }
  }

  /** Whether the volume of the object exists. Throws when the cluster does not say. */
  async hasVolume(claim: string, signal: AbortSignal): Promise<boolean> {
    const { namespace } = this.#world.podSettings;
    const path = `/api/v1/namespaces/${namespace}/persistentvolumeclaims/${claim}`;
    try {
      const found = await this.#world.cluster.get<SandboxObject & { status?: { phase?: string } }>(path, {
        what: 'show the volume',
        signal,
      });
      return found.metadata.deletionTimestamp === undefined && found.status?.phase !== 'Lost';
    } catch (thrown) {
      if (isAbsent(thrown)) return false;
      throw thrown;
    }
  }

  async apiVersion(signal: AbortSignal): Promise<string> {
    return `${GROUP}/${await this.#version.get(signal)}`;
  }

  async #path(signal: AbortSignal): Promise<string> {
    const { namespace } = this.#world.podSettings;
    return `/apis/${GROUP}/${await this.#version.get(signal)}/namespaces/${namespace}/sandboxes`;
  }
}

export function checkpointLabel(id: CheckpointId): string {
  return id.replace(/^ckpt_/, '');
}

function tooLate(
  name: string,
  what: string,
  object: SandboxObject | undefined,
  afterMs: number,
): TorporError {
  const said = object === undefined ? 'it does not exist' : readyText(object);
  return new TorporError(
    'timeout',
    `The Sandbox "${name}" was not ${what} within ${afterMs / 1_000} s: ${said}.`,
  );
}
