/**
 * Which version of the API the cluster serves, found by asking. A server that only knows v1alpha1 silently drops the field
 * `operatingMode`, so the version decides which field is written.
 */
import { type Cluster, isUnserved } from '@torpor/pods';
import { TorporError } from '@torpor/protocol';

export const GROUP = 'agents.x-k8s.io';
export type ApiVersion = 'v1beta1' | 'v1alpha1';
const KNOWN: readonly ApiVersion[] = ['v1beta1', 'v1alpha1'];

/** Whether a Sandbox shall run. */
export type Mode = 'Running' | 'Suspended';

/** The part of the spec that says whether the Sandbox shall run. */
export function modeSpec(version: ApiVersion, mode: Mode): object {
  return version === 'v1beta1' ? { operatingMode: mode } : { replicas: mode === 'Running' ? 1 : 0 };
}

interface ApiGroup {
  readonly versions?: readonly { readonly version: string }[];
}

export class ServedVersion {
  readonly #cluster: Cluster;
  #found: ApiVersion | undefined;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  async get(signal: AbortSignal): Promise<ApiVersion> {
    this.#found ??= await this.#ask(signal);
    return this.#found;
  }

  async #ask(signal: AbortSignal): Promise<ApiVersion> {
    const group = await this.#cluster
      .get<ApiGroup>(`/apis/${GROUP}`, { what: 'name the versions of agent-sandbox', signal })
      .catch((thrown: unknown) => {
        throw isUnserved(thrown) ? notInstalled(thrown) : thrown;
      });
    const served = new Set((group.versions ?? []).map(({ version }) => version));
    const version = KNOWN.find((known) => served.has(known));
    if (version !== undefined) return version;
    throw new TorporError(
      'capability_unsupported',
      `The cluster serves agent-sandbox ${[...served].join(', ') || 'in no version'}; Torpor knows ${KNOWN.join(' and ')}.`,
    );
  }
}

function notInstalled(cause: unknown): TorporError {
  return new TorporError('capability_unsupported', 'The cluster does not have agent-sandbox.', {
    hint: 'Install the CRDs and the controller of kubernetes-sigs/agent-sandbox.',
    cause,
  });
}
