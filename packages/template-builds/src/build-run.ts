/** One build: its base, its steps, its start command. Ends in a checkpoint and what its sandboxes get. */
import { posix } from 'node:path';
import {
  type CopyOrder,
  digestOf,
  makeDirectory,
  placementOfFiles,
  quoted,
  type RunningSandbox,
  StepChain,
  type StepSandboxes,
} from '@torpor/build-steps';
import type { Clock, Engine } from '@torpor/engine';
import { type CheckpointId, type Service, TorporError } from '@torpor/protocol';
import type { Bases, BuildConfig } from './base.ts';
import type { TemplateBuild } from './build.ts';
import type { BuildLog } from './build-log.ts';
import { sourcesIn } from './files/archive-sources.ts';
import type { FileStore } from './files/file-store.ts';
import type { BuildOrder, BuildStep } from './order.ts';
import type { TemplateBuildSettings } from './settings.ts';

export interface BuildRunContext {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly settings: TemplateBuildSettings;
  readonly files: FileStore;
  readonly bases: Bases;
  readonly sandboxes: StepSandboxes;
  readonly log: BuildLog;
  readonly signal: AbortSignal;
}

export interface BuildResult {
  readonly from: CheckpointId;
  readonly config: BuildConfig;
}

/** Accounts and directories that every sandbox has. */
const USUAL_USERS: readonly string[] = ['root', 'user'];
const USUAL_DIRECTORIES: readonly string[] = ['/', '/home/user'];

/** A template of this name exists only while the start command of a build begins. */
export function temporaryName({ id }: Pick<TemplateBuild, 'id'>): string {
  return `build-${id}`;
}

export class BuildRun {
  readonly #ctx: BuildRunContext;
  readonly #build: TemplateBuild;
  readonly #order: BuildOrder;
  #config: BuildConfig = { env: {}, user: 'user', workdir: '/', services: [], resources: {} };
  /** The command that runs, for the error. */
  #running = '';
  /** Commands that make accounts and directories. They run with the next step that changes files. */
  #preparations: string[] = [];

  constructor(ctx: BuildRunContext, build: TemplateBuild, order: BuildOrder) {
    this.#ctx = ctx;
    this.#build = build;
    this.#order = order;
  }

  async run(): Promise<BuildResult> {
    const { bases, log, sandboxes, signal } = this.#ctx;
    const { org } = this.#build;
    const { base, steps, force } = this.#order;
    log.line('info', `FROM ${base.is === 'image' ? base.reference : base.name}`);
    const { config, ...start } = await bases.resolve(
      org,
      this.#order,
      (line) => log.line('info', line),
      signal,
    );
    const { resources } = this.#build;
    this.#config = { ...config, resources: { ...config.resources, ...resources } };
    const failure = (exitCode: number) =>
      new TorporError('conflict', `${this.#running} ended with exit code ${exitCode}.`);
    const chain = new StepChain(
      { sandboxes, useCache: !force, resources: this.#config.resources, failure },
      start,
    );
    try {
      for (const [index, step] of steps.entries()) {
        signal.throwIfAborted();
        log.step = String(index + 1);
        await this.#perform(chain, step, `[${index + 1}/${steps.length}]`);
      }
      log.step = 'finalize';
      return await this.#finish(chain);
    } finally {
      await chain.close();
    }
  }

  async #perform(chain: StepChain, step: BuildStep, number: string): Promise<void> {
    const { log } = this.#ctx;
    const config = this.#config;
    switch (step.is) {
      case 'env': {
        const env = { ...config.env };
        for (const [name, value] of step.pairs) env[name] = withVariables(value, env);
        log.line('info', `${number} ENV ${step.pairs.map(([name]) => name).join(' ')}`);
        this.#config = { ...config, env };
        return;
      }
      case 'user': {
        const name = step.name;
        log.line('info', `${number} USER ${name}`);
        if (!USUAL_USERS.includes(name) && !isNumber(name))
          this.#preparations.push(
            `id -u ${quoted(name)} > /dev/null 2>&1 || useradd --create-home --shell /bin/sh ${quoted(name)}`,
          );
        this.#config = { ...config, user: name };
        return;
      }
      case 'workdir': {
        const workdir = posix.resolve(config.workdir, withVariables(step.path, config.env));
        log.line('info', `${number} WORKDIR ${workdir}`);
        if (!USUAL_DIRECTORIES.includes(workdir))
          this.#preparations.push(`set -e\n${makeDirectory(workdir, `${config.user}:`)}`);
        this.#config = { ...config, workdir };
        return;
      }
      case 'run': {
        const user = step.user ?? config.user;
        const { env, workdir } = config;
        return this.#step(
          chain,
          `${number} RUN ${step.command}`,
          step,
          ['run', step.command, env, user, workdir],
          (sandbox) => this.#command(chain, sandbox, step.command, user),
        );
      }
      case 'copy':
        return this.#copy(chain, step, number);
    }
  }

  async #copy(chain: StepChain, step: Extract<BuildStep, { is: 'copy' }>, number: string): Promise<void> {
    const { files, signal } = this.#ctx;
    const { user, workdir, env } = this.#config;
    const { owner = user, source, mode: chmod } = step;
    const sources = sourcesIn(await files.open(this.#build.org, step.filesHash, signal), source);
    const target = withVariables(step.target, env);
    const order: CopyOrder = {
      target: `${posix.resolve(workdir, target)}${/(^|\/)\.?$/.test(target) ? '/' : ''}`.replace('//', '/'),
      isAdd: false,
      // With a colon and no group, the files get the group of the account.
      chown: owner.includes(':') ? owner : `${owner}:`,
      chmod,
    };
    const dependsOn = ['copy', order, await digestOf(sources)];
    await this.#step(chain, `${number} COPY ${source} ${step.target}`, step, dependsOn, (sandbox) =>
      chain.place(sandbox, placementOfFiles(sources, order)),
    );
  }

  async #step(
    chain: StepChain,
    text: string,
    { force }: { readonly force: boolean },
    dependsOn: readonly unknown[],
    work: (sandbox: RunningSandbox) => Promise<void>,
  ): Promise<void> {
    const { log } = this.#ctx;
    const preparations = this.#preparations;
    this.#preparations = [];
    await chain.step({
      dependsOn: preparations.length === 0 ? dependsOn : [...dependsOn, preparations],
      force,
      onCached: () => log.line('info', `CACHED ${text}`),
      onRun: () => log.line('info', text),
      work: async (sandbox) => {
        for (const command of preparations) {
          this.#running = command;
          await chain.run(sandbox, { command, user: 'root', cwd: '/' });
        }
        this.#running = text.replace(/^\[\S+\] /, '');
        await work(sandbox);
        log.endOutput();
      },
    });
  }

  /** Commands run as users with names, and with the PATH of the build, which a login shell would reset. */
  async #command(chain: StepChain, sandbox: RunningSandbox, command: string, user: string): Promise<void> {
    const { env, workdir } = this.#config;
    await chain.run(sandbox, {
      command: withPath(command, env),
      cwd: workdir,
      env,
      user: await this.#account(chain, sandbox, user),
    });
  }

  async #account(chain: StepChain, sandbox: RunningSandbox, user: string): Promise<string> {
    if (!isNumber(user)) return user;
    const found = await chain.accountOf(sandbox, user);
    if (found !== undefined) return found;
    throw new TorporError('invalid_request', `The user ${user} has no account in /etc/passwd.`);
  }

  async #finish(chain: StepChain): Promise<BuildResult> {
    const { startCommand, readyCommand } = this.#order;
    const isSealed = 'from' in chain.position.at;
    if (!isSealed || this.#preparations.length > 0)
      await this.#step(chain, 'Sealing the files', { force: false }, ['checkpoint'], async () => {});
    const { user } = this.#config;
    if (isNumber(user))
      this.#config = { ...this.#config, user: await this.#account(chain, await chain.open(), user) };
    if (startCommand !== undefined || readyCommand !== undefined)
      await this.#start(chain, startCommand, readyCommand);
    return { from: sealedAt(chain), config: this.#config };
  }

  /** Runs the start command as a service, and seals the template when the ready command succeeds. */
  async #start(chain: StepChain, start: string | undefined, ready: string | undefined): Promise<void> {
    const { log } = this.#ctx;
    if (start !== undefined) this.#config = { ...this.#config, services: [startService(start)] };
    await chain.step({
      dependsOn: ['start', this.#config, ready],
      onCached: () => log.line('info', 'CACHED start command'),
      onRun: () => log.line('info', start === undefined ? 'Starting' : `Running start command: ${start}`),
      open: () => this.#openWithServices(sealedAt(chain)),
      work: (sandbox) => (ready === undefined ? Promise.resolve() : this.#untilReady(chain, sandbox, ready)),
    });
  }

  /** Only a template gives its sandboxes a user, a directory and services. */
  async #openWithServices(from: CheckpointId): Promise<RunningSandbox> {
    const { engine, sandboxes } = this.#ctx;
    const { org } = this.#build;
    const name = temporaryName(this.#build);
    await engine.nameTemplates(org, { names: [name], from, taken: 'replace', ...definitionOf(this.#config) });
    try {
      return await sandboxes.create({ template: name });
    } finally {
      await engine.deleteTemplate(org, name);
    }
  }

  async #untilReady(chain: StepChain, sandbox: RunningSandbox, ready: string): Promise<void> {
    const { clock, log, settings, sandboxes, signal } = this.#ctx;
    const { env, user, workdir } = this.#config;
    log.line('info', `Waiting for template to be ready: ${ready}`);
    const command = { command: withPath(ready, env), cwd: workdir, env, quiet: true } as const;
    const until = clock.monotonic() + settings.readyMs;
    const account = await this.#account(chain, sandbox, user);
    while ((await sandboxes.run(sandbox, { ...command, user: account })) !== 0) {
      await this.#refuseFailedStart(sandbox);
      if (clock.monotonic() > until)
        throw new TorporError('timeout', `The template was not ready after ${settings.readyMs / 1_000} s.`);
      await clock.sleep(settings.readyEveryMs, signal);
    }
    log.line('info', 'Template is ready');
  }

  async #refuseFailedStart({ id }: RunningSandbox): Promise<void> {
    const jobs = await this.#ctx.engine.allJobs(this.#build.org, id);
    const ended = jobs.find(({ name, exitCode }) => name === START && exitCode !== null && exitCode !== 0);
    if (ended !== undefined)
      throw new TorporError('conflict', `The start command ended with exit code ${ended.exitCode}.`);
  }
}

const START = 'start';

/** E2B runs start commands in a login shell. Not every image has bash. */
function startService(command: string): Service {
  const word = quoted(command);
  return {
    name: START,
    command: `[ -x /bin/bash ] && exec /bin/bash -l -c ${word}; exec /bin/sh -l -c ${word}`,
  };
}

/** What sandboxes of the template get. */
export function definitionOf({ env, user, workdir, services, resources }: BuildConfig) {
  return { env: { ...env }, user, workdir, services: [...services], resources };
}

function sealedAt({ position }: StepChain): CheckpointId {
  if ('from' in position.at) return position.at.from;
  throw new Error('The files of the build are not sealed.');
}

/** `$NAME` and `${NAME}`; everything else stays as it is. */
function withVariables(text: string, env: Readonly<Record<string, string>>): string {
  return text.replace(
    /\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})/g,
    (_, plain: string | undefined, braced: string | undefined) => env[plain ?? braced ?? ''] ?? '',
  );
}

function withPath(command: string, env: Readonly<Record<string, string>>): string {
  const path = env['PATH'];
  return path === undefined ? command : `export PATH=${quoted(path)}\n${command}`;
}

function isNumber(user: string): boolean {
  return /^\d+$/.test(user);
}
