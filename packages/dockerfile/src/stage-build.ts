/** One stage of a Dockerfile: its instructions as steps, and what they set for later ones. */
import { posix } from 'node:path';
import {
  type ChainPosition,
  type CopyOrder,
  commandFor,
  digestOf,
  placementOfFiles,
  quoted,
  quotedAll,
  type RunningSandbox,
  type Source,
  StepChain,
  type StepSandboxes,
} from '@torpor/build-steps';
import type { Resources } from '@torpor/sdk';
import type { BuildContext } from './build-context.ts';
import { BuildFailure } from './build-failure.ts';
import { expand, expandList, expandText, type Lookup } from './expand.ts';
import type { InlineFile } from './heredocs.ts';
import type { CommandForm, CopyInstruction, Instruction } from './parse.ts';
import { type StageFile, StageFiles } from './stage-files.ts';

/** What later instructions, and sandboxes of the template, get from the instructions so far. */
export interface StageConfig {
  readonly env: Readonly<Record<string, string>>;
  /** Of USER. Undefined: sandboxes have the user of the template that the build began with. */
  readonly user: string | undefined;
  /** Runs steps before the first USER. Undefined: the user of the sandbox. */
  readonly usualUser: string | undefined;
  readonly workdir: string;
  readonly shell: readonly string[];
  readonly entrypoint: CommandForm | undefined;
  readonly cmd: CommandForm | undefined;
  readonly ports: readonly number[];
  /** Limits of the sandboxes, of the template that the stage began with. */
  readonly resources: Resources;
}

/** Where a stage begins, or how far it is. */
export interface Position extends ChainPosition {
  readonly config: StageConfig;
}

export interface BuildParts {
  readonly sandboxes: StepSandboxes;
  readonly context: BuildContext;
  readonly buildArgs: ReadonlyMap<string, string>;
  /** ARG before the first FROM. */
  readonly globalArgs: ReadonlyMap<string, string>;
  readonly useCache: boolean;
  /** Limits of the sandboxes. They take precedence over those of the template that a stage begins with. */
  readonly resources: Resources;
  say(line: string): void;
  /** Another stage, by its name or number, or an image. */
  resolve(from: string, line: number): Promise<Position>;
}

interface About {
  readonly line: number;
  readonly text: string;
}

export class StageBuild {
  readonly #parts: BuildParts;
  readonly #args = new Map<string, string>();
  readonly #chain: StepChain;
  #config: StageConfig;
  /** The instruction that is performed. */
  #about: About = { line: 0, text: '' };

  constructor(parts: BuildParts, { config, ...start }: Position) {
    this.#parts = parts;
    this.#config = config;
    const { sandboxes, useCache } = parts;
    const resources = { ...config.resources, ...parts.resources };
    this.#chain = new StepChain(
      { sandboxes, useCache, resources, failure: (exitCode, { name }) => this.#failure(exitCode, name) },
      start,
    );
  }

  get position(): Position {
    return { ...this.#chain.position, config: this.#config };
  }

  async perform(instruction: Instruction): Promise<void> {
    const config = this.#config;
    this.#about = instruction;
    switch (instruction.is) {
      case 'run':
        return this.#run(instruction.command);
      case 'copy':
        return this.#copy(instruction.copy);
      case 'workdir':
        return this.#workdir(expand(instruction.value, this.#lookUp));
      case 'arg': {
        const { buildArgs, globalArgs } = this.#parts;
        for (const { name, value } of instruction.args) {
          const usual = value === undefined ? globalArgs.get(name) : expand(value, this.#lookUp);
          const given = buildArgs.get(name) ?? usual;
          if (given !== undefined) this.#args.set(name, given);
        }
        return;
      }
      case 'env': {
        // All values of one line see the variables before the line.
        const env = Object.fromEntries(
          instruction.pairs.map(([name, value]) => [name, expand(value, this.#lookUp)]),
        );
        return this.#set({ env: { ...config.env, ...env } });
      }
      case 'user':
        return this.#set({ user: expand(instruction.value, this.#lookUp) });
      case 'expose':
        return this.#set({ ports: [...new Set([...config.ports, ...this.#ports(instruction)])] });
      case 'cmd':
        return this.#set({ cmd: instruction.command });
      case 'entrypoint':
        // As for Docker, a new ENTRYPOINT drops the CMD that came before.
        return this.#set({ entrypoint: instruction.command, cmd: undefined });
      case 'shell':
        return this.#set({ shell: instruction.words });
      case 'label':
        return;
    }
  }

  /** Ends the stage in a checkpoint, also when no step has changed a file. */
  async finish(): Promise<void> {
    this.#about = { line: 0, text: 'checkpoint' };
    if (!('from' in this.#chain.position.at)) await this.#step(['checkpoint'], async () => {});
    const { user } = this.#config;
    if (user !== undefined && isNumber(user))
      this.#set({ user: await this.#userName(await this.#chain.open(), user) });
  }

  /** Ends the sandbox of the stage. */
  close(): Promise<void> {
    return this.#chain.close();
  }

  /** Leaves the sandbox of a failed step to its user. */
  abandon(): void {
    this.#chain.abandon();
  }

  readonly #lookUp: Lookup = (name) => this.#config.env[name] ?? this.#args.get(name);

  #set(change: Partial<StageConfig>): void {
    this.#config = { ...this.#config, ...change };
  }

  #ports({ line, value }: Extract<Instruction, { is: 'workdir' | 'user' | 'expose' }>): number[] {
    return expandList(value, this.#lookUp).flatMap((text) => {
      const [, port, protocol = 'tcp'] = /^(\d{1,5})(?:\/(tcp|udp))?$/.exec(text) ?? [];
      if (port === undefined) throw new BuildFailure(`Line ${line}: "${text}" is not a port.`, { line });
      return protocol === 'tcp' ? [Number(port)] : [];
    });
  }

  async #run(command: CommandForm): Promise<void> {
    const config = this.#config;
    const words = typeof command === 'string' ? [...config.shell, command] : command;
    const env = { ...Object.fromEntries(this.#args), ...config.env };
    const { user = config.usualUser, workdir } = config;
    await this.#step(['run', words, env, user, workdir], async (sandbox) => {
      // A login shell resets PATH.
      const path = env['PATH'] === undefined ? '' : `export PATH=${quoted(env['PATH'])}; `;
      const request = { command: `${path}exec ${quotedAll(words)}`, cwd: workdir, env };
      await this.#chain.run(sandbox, { ...request, user: await this.#userName(sandbox, user) });
    });
  }

  async #workdir(value: string): Promise<void> {
    const workdir = posix.resolve(this.#config.workdir, value);
    this.#set({ workdir });
    await this.#step(['workdir', workdir], (sandbox) =>
      this.#chain.run(sandbox, { command: `mkdir -p ${quoted(workdir)}`, user: 'root', cwd: '/' }),
    );
  }

  async #copy(copy: CopyInstruction): Promise<void> {
    const { line } = this.#about;
    const paths =
      typeof copy.paths === 'string'
        ? expandList(copy.paths, this.#lookUp)
        : copy.paths.map((path) => expand(path, this.#lookUp));
    const target = paths.pop() ?? '';
    const order: CopyOrder = {
      target: resolved(this.#config.workdir, target),
      isAdd: copy.isAdd,
      chown: copy.chown === undefined ? undefined : expand(copy.chown, this.#lookUp),
      chmod: copy.chmod,
    };
    if (copy.from !== undefined) return this.#copyFrom(expand(copy.from, this.#lookUp), paths, order);
    const found = (await Promise.all(paths.map((path) => this.#parts.context.find(path)))).flat();
    const sources = [...copy.inline.map((file) => this.#inlineSource(file)), ...found];
    if (sources.length === 0)
      throw new BuildFailure(`Line ${line}: the build context has no ${paths.join(', ')}.`, { line });
    await this.#step(['copy', order, await digestOf(sources)], (sandbox) =>
      this.#chain.place(sandbox, placementOfFiles(sources, order)),
    );
  }

  #inlineSource({ name, content, isExpanded }: InlineFile): Source {
    const bytes = Buffer.from(isExpanded ? expandText(content, this.#lookUp) : content);
    const stream = async function* () {
      yield bytes;
    };
    const item = {
      path: name,
      type: 'file',
      mode: 0o644,
      mtime: 0,
      size: bytes.length,
      content: stream,
    } as const;
    return { isDirectory: false, items: [item] };
  }

  /** Packs the files in a sandbox of the other stage. */
  async #copyFrom(from: string, paths: readonly string[], order: CopyOrder): Promise<void> {
    const { sandboxes } = this.#parts;
    const { line } = this.#about;
    const other = await this.#parts.resolve(from, line);
    await this.#step(['copy from', other.key, paths, order], async (sandbox) => {
      const source = await sandboxes.create(other.at);
      try {
        const files = new StageFiles(sandboxes, source);
        const found: StageFile[] = [];
        for (const path of paths) found.push(...(await files.find(path)));
        if (found.length === 0)
          throw new BuildFailure(`Line ${line}: ${from} has no ${paths.join(', ')}.`, { line });
        const { place, archive, command } = commandFor(
          found.map(({ path, isDirectory }) => (isDirectory ? null : posix.basename(path))),
          order,
        );
        // The sandbox of the other stage is removed in any case, so the error does not name it.
        const exitCode = await files.pack(found, place, archive);
        if (exitCode !== 0)
          throw new BuildFailure(`Line ${line}: ${from} cannot pack the files (exit code ${exitCode}).`, {
            line,
          });
        const bytes = await sandboxes.read(source, archive);
        const content = async function* () {
          yield bytes;
        };
        await this.#chain.place(sandbox, { archive, command, content });
      } finally {
        await sandboxes.kill(source);
      }
    });
  }

  #step(dependsOn: readonly unknown[], work: (sandbox: RunningSandbox) => Promise<void>): Promise<void> {
    const { line, text } = this.#about;
    const { say } = this.#parts;
    return this.#chain.step({
      dependsOn,
      onCached: () => say(`CACHED ${text}`),
      onRun: () => say(line === 0 ? 'Sealing the files' : `Line ${line}: ${text}`),
      work,
    });
  }

  #failure(exitCode: number, sandbox: string): BuildFailure {
    const { line, text } = this.#about;
    return new BuildFailure(`Line ${line}: ${text} ended with exit code ${exitCode}.`, { line, sandbox });
  }

  async #userName(sandbox: RunningSandbox, user: string | undefined): Promise<string | undefined> {
    if (user === undefined || !isNumber(user)) return user;
    const found = await this.#chain.accountOf(sandbox, user);
    if (found !== undefined) return found;
    const { line } = this.#about;
    throw new BuildFailure(`Line ${line}: the user ${user} has no account in /etc/passwd.`, {
      line,
      sandbox: sandbox.name,
    });
  }
}

function isNumber(user: string): boolean {
  return /^\d+$/.test(user);
}

/** Keeps the `/` at the end, which says that the target is a directory. */
function resolved(workdir: string, target: string): string {
  const isDirectory = /(^|\/)\.?$/.test(target);
  const path = posix.resolve(workdir, target);
  return isDirectory && !path.endsWith('/') ? `${path}/` : path;
}
