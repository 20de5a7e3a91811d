/**
 * Pods that run before their sandbox is created: a SandboxWarmPool of agent-sandbox, from which a SandboxClaim takes one. It
 * has pods of the template `base` with the default limits; every other start makes its own Sandbox.
 *
 * A claim is only the way to get a Sandbox. Once the Sandbox belongs to an instance, the claim is deleted, and the Sandbox is
 * one as every other. Until then a finalizer of ours keeps the claim: a claim that is being deleted changes nothing any more,
 * and while it exists the garbage collector leaves its Sandbox alone.
 */
import { randomBytes } from 'node:crypto';
import type { Instance } from '@torpor/engine';
import {
  type Condition,
  CREDENTIAL_KEY,
  condition,
  HOME_LABEL,
  isAbsent,
  isConflict,
  type List,
  labelsOf,
  type Metadata,
  nextLookMs,
  objectName,
  type PodWorld,
  poolCredential,
  selectorOf,
} from '@torpor/pods';
import { type SandboxId, TorporError } from '@torpor/protocol';

const GROUP = 'extensions.agents.x-k8s.io/v1beta1';
const FINALIZER = 'torpor.dev/claim';

const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/** So that the first requests to a new sandbox do not wait for the controllers that see the claim go. */
const LET_GO_MS = 1_000;

/** Reasons of a claim for which no Sandbox will come: the pool was deleted. */
const NO_POOL: ReadonlySet<string> = new Set(['WarmPoolNotFound', 'TemplateNotFound']);

interface Claim {
  readonly metadata: Metadata;
  readonly status?: {
    readonly sandbox?: { readonly name?: string };
    readonly conditions?: readonly Condition[];
  };
}

/** A create must not be aborted half done: the cluster could make the claim after its removal. */
const NEVER_ABORTED = new AbortController().signal;

type Kind = 'sandboxtemplates' | 'sandboxwarmpools' | 'sandboxclaims';

export class WarmPool {
  readonly #world: PodWorld;
  /** Of a Sandbox that waits in the pool: its pod and its volume. */
  readonly #blueprint: object;
  readonly #stopping = new AbortController();
  #making: Promise<void> | undefined;
  readonly #removals = new Set<Promise<void>>();
  /** From which the credentials of the waiting agents are derived. */
  #key = '';
  #isThere = false;

  constructor(world: PodWorld, blueprintOf: (secretName: string) => object) {
    this.#world = world;
    this.#blueprint = blueprintOf(this.#name);
  }

  get #name(): string {
    return `torpor-${this.#world.home}`;
  }

  /** Makes the pool, or brings it up to date, as soon as the cluster answers. No start waits for it. */
  begin(): void {
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#making;
    await Promise.all(this.#removals);
  }

  async #make(): Promise<void> {
    const { clock, report } = this.#world;
    const { signal } = this.#stopping;
    for (let retryMs = FIRST_RETRY_MS; !signal.aborted; retryMs = Math.min(2 * retryMs, MAX_RETRY_MS)) {
      try {
        const key = await this.#makeKey(signal);
        await this.#put('sandboxtemplates', 'SandboxTemplate', {
          ...this.#blueprint,
          // The policies of the namespace apply, as to every other sandbox.
          networkPolicyManagement: 'Unmanaged',
        });
        await this.#put('sandboxwarmpools', 'SandboxWarmPool', {
          replicas: this.#world.podSettings.warmPool,
          sandboxTemplateRef: { name: this.#name },
          // A sandbox never starts with the agent of an earlier version.
          updateStrategy: { type: 'Recreate' },
        });
        this.#key = key;
        this.#isThere = true;
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (retryMs === FIRST_RETRY_MS) report('the warm pool could not be made', { error });
        await clock.sleep(retryMs, signal).catch(() => {});
      }
    }
  }

  /** The first server makes the key, and all others read it. */
  async #makeKey(signal: AbortSignal): Promise<string> {
    const { cluster, podSettings, home } = this.#world;
    const path = `/api/v1/namespaces/${podSettings.namespace}/secrets`;
    const key = randomBytes(32).toString('hex');
    const body = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: this.#name, labels: { [HOME_LABEL]: home } },
      type: 'Opaque',
      stringData: { [CREDENTIAL_KEY]: key },
    };
    try {
      await cluster.create(path, { what: 'store the key of the warm pool', body, signal });
      return key;
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
    }
    const ask = { what: 'read the key of the warm pool', signal };
    const { data } = await cluster.get<{ data?: Record<string, string> }>(`${path}/${this.#name}`, ask);
    return Buffer.from(data?.[CREDENTIAL_KEY] ?? '', 'base64').toString('utf8');
  }

  async #put(kind: Kind, objectKind: string, spec: object): Promise<void> {
    const { cluster, home } = this.#world;
    const { signal } = this.#stopping;
    const metadata = { name: this.#name, labels: { [HOME_LABEL]: home } };
    const body = { apiVersion: GROUP, kind: objectKind, metadata, spec };
    try {
      await cluster.create(this.#path(kind), { what: `make the ${objectKind}`, body, signal });
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
      // As a whole: a setting that was removed must not stay.
      const replace = [{ op: 'replace', path: '/spec', value: spec }];
      const contentType = 'application/json-patch+json';
      const change = { what: `change the ${objectKind}`, body: replace, contentType, signal };
      await cluster.patch(`${this.#path(kind)}/${this.#name}`, change);
    }
  }

  /** Whether a claim can be made. Without the pool every start makes its own Sandbox. */
  get isThere(): boolean {
    return this.#isThere;
  }

  credentialOf(podUid: string): string {
    return poolCredential(this.#key, podUid);
  }

  /**
   * The name of a Sandbox for the instance, from the pool, or made from its template when the pool is empty. Undefined, with
   * nothing left behind, when the pool was deleted.
   */
  async claim(instance: Instance, signal: AbortSignal): Promise<string | undefined> {
    const { cluster, clock, settings, home } = this.#world;
    const name = objectName(instance);
    const body = {
      apiVersion: GROUP,
      kind: 'SandboxClaim',
      metadata: { name, labels: labelsOf(home, instance), finalizers: [FINALIZER] },
      spec: { warmPoolRef: { name: this.#name } },
    };
    const ask = { what: 'claim a Sandbox', signal };
    const order = { ...ask, body, signal: NEVER_ABORTED };
    await cluster.create(this.#path('sandboxclaims'), order).catch((thrown: unknown) => {
      if (!isConflict(thrown)) throw thrown;
    });
    const began = clock.monotonic();
    const deadline = began + settings.agentSandboxMs;
    for (;;) {
      const { status } = await cluster.get<Claim>(`${this.#path('sandboxclaims')}/${name}`, ask);
      if (status?.sandbox?.name !== undefined && status.sandbox.name !== '') return status.sandbox.name;
      const ready = condition(status?.conditions, 'Ready');
      if (NO_POOL.has(ready?.reason ?? '')) return this.#withoutPool(instance, signal);
      if (clock.monotonic() > deadline) throw tooLate(instance, ready, settings.agentSandboxMs);
      await clock.sleep(nextLookMs(clock.monotonic() - began), signal);
    }
  }

  async #withoutPool(instance: Instance, signal: AbortSignal): Promise<undefined> {
    this.#isThere = false;
    this.begin();
    await this.beginRemoval(instance, signal);
    await this.endRemoval(instance, signal);
  }

  /** From here on the claim has no effect on its Sandbox. */
  async beginRemoval(instance: Instance, signal: AbortSignal): Promise<void> {
    const path = `${this.#path('sandboxclaims')}/${objectName(instance)}`;
    await this.#world.cluster.remove(path, { what: 'delete the claim', signal }).catch(unlessAbsent);
  }

  /** The claim is gone then, and a Sandbox that it still owns goes with it. */
  async endRemoval(instance: Instance, signal: AbortSignal): Promise<void> {
    const path = `${this.#path('sandboxclaims')}/${objectName(instance)}`;
    const ask = { what: 'delete the claim', body: { metadata: { finalizers: null } }, signal };
    await this.#world.cluster.patch(path, ask).catch(unlessAbsent);
  }

  /**
   * Ends the removal of a claim whose Sandbox belongs to the instance, a moment after the start. A claim that is left, because the
   * server dies or the cluster does not answer, has no effect; the destruction of the instance finds and removes it.
   */
  letGo(instance: Instance): void {
    const removal: Promise<void> = this.#letGo(instance).finally(() => this.#removals.delete(removal));
    this.#removals.add(removal);
  }

  async #letGo(instance: Instance): Promise<void> {
    const { clock, report } = this.#world;
    await clock.sleep(LET_GO_MS, this.#stopping.signal).catch(() => {});
    await this.endRemoval(instance, NEVER_ABORTED).catch((error: unknown) =>
      report('the claim of a sandbox could not be removed', { sandboxId: instance.sandboxId, error }),
    );
  }

  /** The claims of starts that a server did not complete. */
  async claims(signal: AbortSignal, sandboxId?: SandboxId): Promise<readonly Claim[]> {
    const query = { labelSelector: selectorOf(this.#world.home, sandboxId) };
    const ask = { what: 'list the claims', query, signal };
    return (await this.#world.cluster.get<List<Claim>>(this.#path('sandboxclaims'), ask)).items;
  }

  #path(kind: Kind): string {
    return `/apis/${GROUP}/namespaces/${this.#world.podSettings.namespace}/${kind}`;
  }
}

function unlessAbsent(thrown: unknown): void {
  if (!isAbsent(thrown)) throw thrown;
}

function tooLate({ sandboxId }: Instance, ready: Condition | undefined, afterMs: number): TorporError {
  const said = ready === undefined ? 'the controller has not said anything' : (ready.message ?? ready.reason);
  return new TorporError('timeout', `The claim got no Sandbox within ${afterMs / 1_000} s: ${said}.`, {
    sandboxId,
    hint: 'Look whether the controller of agent-sandbox runs with its extensions (--extensions).',
  });
}
