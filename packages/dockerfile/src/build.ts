/**
 * Builds a template from a Dockerfile.
 *
 * ```ts
 * await buildTemplate({ torpor, name: 'app', directory: '.', say: console.log, … });
 * ```
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { CACHE_SECONDS, imageTemplateName, quotedAll, USUAL_PATH } from '@torpor/build-steps';
import type { CreateTemplateRequest, Resources, Service, TemplateView, Torpor } from '@torpor/sdk';
import { BuildContext } from './build-context.ts';
import { BuildFailure } from './build-failure.ts';
import { expand } from './expand.ts';
import { type CommandForm, type Dockerfile, parseDockerfile, type Stage } from './parse.ts';
import { sdkSandboxes } from './sdk-sandboxes.ts';
import { type BuildParts, type Position, StageBuild, type StageConfig } from './stage-build.ts';

export interface BuildOptions {
  readonly torpor: Torpor;
  /** Of the template. It takes the place of one with the same name. */
  readonly name: string;
  /** The build context. */
  readonly directory: string;
  readonly dockerfile: string;
  readonly buildArgs: ReadonlyMap<string, string>;
  /** The stage that becomes the template. Undefined: the last one. */
  readonly target?: string | undefined;
  /** A service that runs in the template when it is sealed. */
  readonly start?: Service | undefined;
  /** Whether ENTRYPOINT and CMD run as the service `start`. */
  readonly entrypoint: boolean;
  readonly useCache: boolean;
  /** Limits of sandboxes of the template whose request sets none. */
  readonly resources: Resources;
  readonly registryCredentials?: { readonly username: string; readonly password: string } | undefined;
  readonly signal: AbortSignal;
  /** Shows the progress of a template that is made from an image. */
  showProgress<T>(template: string, work: Promise<T>): Promise<T>;
  /** A line about the build itself. */
  say(line: string): void;
  /** Output of a step. */
  output(data: string): void;
}

export async function buildTemplate(options: BuildOptions): Promise<TemplateView> {
  const { directory, dockerfile } = options;
  const text = await readFile(dockerfile, 'utf8').catch((thrown: NodeJS.ErrnoException) => {
    throw new BuildFailure(`${dockerfile} cannot be read (${thrown.code}).`);
  });
  const parsed = parseDockerfile(text);
  refuseUnusableArgs(parsed, options.buildArgs);
  return new Build(options, parsed, await BuildContext.open(directory, dockerfile)).run();
}

/** Docker gives these a value when an ARG names them. The platform of the server is not known here. */
const PLATFORM_ARG = /^(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)$/;

function refuseUnusableArgs({ args, stages }: Dockerfile, given: ReadonlyMap<string, string>): void {
  const inStages = stages.flatMap(({ instructions }) =>
    instructions.flatMap((one) =>
      one.is === 'arg' ? one.args.map((arg) => ({ ...arg, line: one.line })) : [],
    ),
  );
  const names = new Set([...args, ...inStages].map(({ name }) => name));
  const unknown = [...given.keys()].filter((name) => !names.has(name));
  if (unknown.length > 0) throw new BuildFailure(`The Dockerfile has no ARG ${unknown.join(', ')}.`);
  const usual = new Set(args.flatMap(({ name, value }) => (value === undefined ? [] : [name])));
  for (const { name, value, line } of inStages)
    if (PLATFORM_ARG.test(name) && value === undefined && !given.has(name) && !usual.has(name))
      throw new BuildFailure(`Line ${line}: ${name} has no value. Give it one: --build-arg ${name}=…`, {
        line,
      });
}

class Build {
  readonly #options: BuildOptions;
  readonly #stages: readonly Stage[];
  readonly #parts: BuildParts;
  /** Each stage is built once, when something needs it. */
  readonly #built = new Map<number, Promise<Position>>();

  constructor(options: BuildOptions, { args, stages }: Dockerfile, context: BuildContext) {
    const { buildArgs, useCache, resources } = options;
    const globalArgs = new Map<string, string>();
    for (const arg of args) {
      const value =
        buildArgs.get(arg.name) ??
        (arg.value === undefined ? undefined : expand(arg.value, (one) => globalArgs.get(one)));
      if (value !== undefined) globalArgs.set(arg.name, value);
    }
    this.#options = options;
    this.#stages = stages;
    this.#parts = {
      sandboxes: sdkSandboxes({ ...options, newName: () => this.#newName() }),
      context,
      buildArgs,
      globalArgs,
      useCache,
      resources,
      say: (line) => options.say(line),
      resolve: (from, line) => this.#resolve(from, line, stages.length),
    };
  }

  async run(): Promise<TemplateView> {
    const { name, target, torpor, signal } = this.#options;
    const last =
      target === undefined ? this.#stages.length - 1 : this.#stageNamed(target, this.#stages.length);
    if (last === undefined) throw new BuildFailure(`The Dockerfile has no stage "${target}".`);
    const { at, config } = await this.#stage(last);
    if (!('from' in at)) throw new Error('A built stage ends in a checkpoint.');
    const { start = this.#options.entrypoint ? startOf(config) : undefined } = this.#options;
    const { env, user, workdir } = config;
    const resources = { ...config.resources, ...this.#options.resources };
    const definition = { env: { ...env }, workdir, resources, ...(user === undefined ? {} : { user }) };
    if (start === undefined)
      return torpor.templates.create(
        { name, from: at.from, replace: true, ...definition, services: [] },
        { signal },
      );
    return this.#withService({ from: at.from, ...definition, services: [start] });
  }

  /** Starts the service once, so that the template is sealed while it runs. */
  async #withService(definition: Omit<CreateTemplateRequest, 'name'>): Promise<TemplateView> {
    const { torpor, name, signal, say } = this.#options;
    const temporary = this.#newName();
    say('Starting the service');
    await torpor.templates.create({ ...definition, name: temporary }, { signal });
    try {
      const { id } = await torpor.sandboxes.create({ template: temporary }, { signal });
      try {
        const sealed = { expiresInSeconds: CACHE_SECONDS };
        const { id: from } = await torpor.sandboxes.snapshot(id, sealed, { signal });
        return await torpor.templates.create({ name, from, replace: true }, { signal });
      } finally {
        await torpor.sandboxes.kill(id);
      }
    } finally {
      await torpor.templates.delete(temporary);
    }
  }

  /** Of a sandbox, or of a template that exists only during the build. */
  #newName(): string {
    const name = this.#options.name.replace(':', '-').slice(0, 40);
    return `build-${name}-${randomBytes(4).toString('hex')}`;
  }

  /** A stage before number `before`, or an image or template. */
  async #resolve(from: string, line: number, before: number): Promise<Position> {
    const stage = this.#stageNamed(from, before);
    return stage === undefined ? this.#image(from, line) : this.#stage(stage);
  }

  #stageNamed(name: string, before: number): number | undefined {
    const byName = this.#stages.findIndex((stage) => stage.name === name.toLowerCase());
    const found = byName < 0 && /^\d+$/.test(name) ? Number(name) : byName;
    return found >= 0 && found < before ? found : undefined;
  }

  #stage(index: number): Promise<Position> {
    const built = this.#built.get(index) ?? this.#buildStage(index);
    this.#built.set(index, built);
    return built;
  }

  async #buildStage(index: number): Promise<Position> {
    const { from, line, instructions, name } = this.#stages[index] as Stage;
    const reference = expand(from, (variable) => this.#parts.globalArgs.get(variable));
    this.#options.say(`FROM ${reference}${name === null ? '' : ` AS ${name}`}`);
    const start = await this.#resolve(reference, line, index);
    const resolve: BuildParts['resolve'] = (other, at) => this.#resolve(other, at, index);
    const stage = new StageBuild({ ...this.#parts, resolve }, start);
    try {
      for (const instruction of instructions) await stage.perform(instruction);
      await stage.finish();
    } catch (thrown) {
      if (thrown instanceof BuildFailure && thrown.sandbox !== null) stage.abandon();
      throw thrown;
    } finally {
      await stage.close();
    }
    return stage.position;
  }

  /** A template of this name, or the template that is made from the image. */
  async #image(reference: string, line: number): Promise<Position> {
    const { torpor, signal, registryCredentials, say, showProgress } = this.#options;
    const own = await this.#find(reference);
    const name = imageTemplateName(reference);
    const found = own ?? (await this.#find(name));
    if (found === undefined) say(`Fetching ${reference}`);
    const template =
      found ??
      (await showProgress(
        name,
        torpor.templates.create({ name, image: reference, registryCredentials }, { signal }),
      ).catch((thrown: unknown) => {
        throw new BuildFailure(`Line ${line}: ${thrown instanceof Error ? thrown.message : String(thrown)}`, {
          line,
        });
      }));
    const { image, checkpointId, resources } = template;
    const config: StageConfig = {
      env: image?.env ?? { PATH: USUAL_PATH },
      user: undefined,
      // The user of an image is that of its sandboxes.
      usualUser: image === null ? 'root' : undefined,
      workdir: image?.workdir ?? '/',
      shell: ['/bin/sh', '-c'],
      resources,
      entrypoint: image === null || image.entrypoint.length === 0 ? undefined : image.entrypoint,
      cmd: image === null || image.cmd.length === 0 ? undefined : image.cmd,
      ports: image?.ports ?? [],
    };
    return { at: { template: template.name }, key: image?.digest ?? checkpointId ?? '', config };
  }

  async #find(name: string): Promise<TemplateView | undefined> {
    // A longer name is no name of a template, and an image may have a path.
    if (!/^[\w.-]{1,63}(?::[\w.-]{1,63})?$/.test(name)) return undefined;
    for await (const template of this.#options.torpor.templates.list({ signal: this.#options.signal }))
      if (template.name === name && template.state === 'ready') return template;
    return undefined;
  }
}

function startOf({ entrypoint, cmd, shell, ports }: StageConfig): Service {
  const words = (form: CommandForm | undefined) =>
    form === undefined ? [] : typeof form === 'string' ? [...shell, form] : form;
  const all = [...words(entrypoint), ...(typeof entrypoint === 'string' ? [] : words(cmd))];
  if (all.length === 0)
    throw new BuildFailure('The stage has neither ENTRYPOINT nor CMD, so there is nothing to start.');
  const [port] = ports;
  return {
    name: 'start',
    command: `exec ${quotedAll(all)}`,
    ...(port !== undefined && ports.length === 1 ? { port } : {}),
  };
}
