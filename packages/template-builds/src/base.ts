/** What a build begins with: a template, or an image that becomes one. */
import { type ChainPosition, imageTemplateName, USUAL_PATH } from '@torpor/build-steps';
import type { Clock, Engine, ImageSource } from '@torpor/engine';
import { KeyedMutex } from '@torpor/host';
import { type Resources, type Service, TorporError } from '@torpor/protocol';
import type { BuildOrder, RegistryCredentials } from './order.ts';

/** What later steps, and sandboxes of the template, get from the steps so far. */
export interface BuildConfig {
  readonly env: Readonly<Record<string, string>>;
  readonly user: string;
  readonly workdir: string;
  readonly services: readonly Service[];
  readonly resources: Resources;
}

export interface Base extends ChainPosition {
  readonly config: BuildConfig;
}

export interface BasesContext {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Throws when the reference is not one. */
  image(org: string, reference: string, credentials: RegistryCredentials | undefined): ImageSource;
}

/** As for E2B: the account and the directory of builds and sandboxes that name none. */
const USUAL = { user: 'user', workdir: '/home/user' } as const;
const POLL_MS = 200;

export class Bases {
  readonly #ctx: BasesContext;
  /** Two builds do not fetch the same image at once. */
  readonly #fetches = new KeyedMutex<string>();

  constructor(ctx: BasesContext) {
    this.#ctx = ctx;
  }

  async resolve(
    org: string,
    order: BuildOrder,
    say: (line: string) => void,
    signal: AbortSignal,
  ): Promise<Base> {
    const { base } = order;
    if (base.is === 'template') {
      const { env, user, workdir, services, resources, checkpointId, image } = await this.#definition(
        org,
        base.name,
      );
      return {
        at: { template: base.name },
        key: image?.digest ?? checkpointId,
        config: {
          env,
          user: user ?? USUAL.user,
          workdir: workdir ?? USUAL.workdir,
          services,
          resources,
        },
      };
    }
    const name = imageTemplateName(base.reference);
    await this.#fetches.run(
      `${org} ${name}`,
      () => this.#fetch(org, name, base.reference, order, say, signal),
      signal,
    );
    const { env, image, checkpointId } = await this.#definition(org, name);
    // The user and directory of the image are not used, as for E2B.
    const config = { env: { PATH: USUAL_PATH, ...env }, services: [], resources: {}, ...USUAL };
    return { at: { template: name }, key: image?.digest ?? checkpointId, config };
  }

  async #definition(org: string, name: string) {
    return this.#ctx.engine.templateDefinition(org, name);
  }

  /** The image becomes a template once. A forced build fetches it again. */
  async #fetch(
    org: string,
    name: string,
    reference: string,
    { force, credentials }: BuildOrder,
    say: (line: string) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const { engine, clock } = this.#ctx;
    const find = async () => (await engine.templates(org)).find((template) => template.name === name);
    let found = await find();
    // Another server, or the command line, may be making it.
    while (found?.state === 'preparing') {
      await clock.sleep(POLL_MS, signal);
      found = await find();
    }
    if (found?.state === 'ready' && !force) return;
    const source = this.#ctx.image(org, reference, credentials);
    if (found?.state === 'ready') await engine.deleteTemplate(org, name);
    say(`Fetching ${reference}`);
    await engine.prepareTemplate({ org, signal }, { name, image: source });
    if (signal.aborted) throw new TorporError('timeout', 'The build was given up.');
  }
}
