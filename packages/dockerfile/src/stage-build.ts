/**
 * One stage of a build. A step that changes files has a key: a digest of the key before it and of everything that the step
 * depends on. The checkpoint after a step has the key as its name. A step whose checkpoint exists is not run; the first one
 * without a checkpoint starts a sandbox from the checkpoint before it.
 */
import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import type { CheckpointId, SandboxId, Torpor } from '@torpor/sdk';
import { type BuildContext, digestOf } from './build-context.ts';
import { BuildFailure } from './build-failure.ts';
import { type CopyOrder, commandFor, type Placement, placementOfFiles } from './copy.ts';
import { expand, expandList, type Lookup } from './expand.ts';
import type { CommandForm, CopyInstruction, Instruction } from './parse.ts';
import { quoted, quotedAll } from './shell-words.ts';

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
}

/** Where a stage begins, or how far it is. */
export interface Position {
  readonly at: { readonly template: string } | { readonly from: CheckpointId };
  /** Identifies the files at this point. */
  readonly key: string;
  readonly config: StageConfig;
}

export interface BuildParts {
  readonly torpor: Torpor;
  readonly context: BuildContext;
  /** The name of the template that is built. */
  readonly name: string;
  readonly buildArgs: ReadonlyMap<string, string>;
  /** ARG before the first FROM. */
  readonly globalArgs: ReadonlyMap<string, string>;
  readonly useCache: boolean;
  readonly signal: AbortSignal;
  say(line: string): void;
  output(data: string): void;
  newSandboxName(): string;
  /** Another stage, by its name or number, or an image. */
  resolve(from: string, line: number): Promise<Position>;
}

/** Steps that no build has made or used for this long are removed with their checkpoints. */
const CACHE_SECONDS = 30 * 24 * 3600;

interface RunningSandbox {
  readonly id: SandboxId;
  readonly name: string;
}

export class StageBuild {
  readonly #parts: BuildParts;
  readonly #args = new Map<string, string>();
  #position: Position;
  #sandbox: RunningSandbox | undefined;

  constructor(parts: BuildParts, start: Position) {
    this.#parts = parts;
    this.#position = start;
  }

  get position(): Position {
    return this.#position;
  }

  async perform(instruction: Instruction): Promise<void> {
    const { config } = this.#position;
    switch (instruction.is) {
      case 'run':
        return this.#run(instruction, instruction.command);
      case 'copy':
        return this.#copy(instruction, instruction.copy);
      case 'workdir':
        return this.#workdir(instruction, expand(instruction.value, this.#lookUp));
      case 'arg': {
        const { name, value } = instruction;
        const { buildArgs, globalArgs } = this.#parts;
        const usual = value === undefined ? globalArgs.get(name) : expand(value, this.#lookUp);
        const given = buildArgs.get(name) ?? usual;
        if (given !== undefined) this.#args.set(name, given);
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
    if (!('from' in this.#position.at)) await this.#step(0, 'checkpoint', ['checkpoint'], async () => {});
    const { user } = this.#position.config;
    if (user !== undefined && isNumber(user))
      this.#set({ user: await this.#userName(await this.#open(), user, 0) });
  }

  /** Ends the sandbox of the stage. */
  async close(): Promise<void> {
    const sandbox = this.#sandbox;
    this.#sandbox = undefined;
    if (sandbox !== undefined) await this.#parts.torpor.sandboxes.kill(sandbox.id);
  }

  /** Leaves the sandbox of a failed step to its user. */
  abandon(): void {
    this.#sandbox = undefined;
  }

  readonly #lookUp: Lookup = (name) => this.#position.config.env[name] ?? this.#args.get(name);

  #set(change: Partial<StageConfig>): void {
    this.#position = { ...this.#position, config: { ...this.#position.config, ...change } };
  }

  #ports({ line, value }: Extract<Instruction, { is: 'workdir' | 'user' | 'expose' }>): number[] {
    return expandList(value, this.#lookUp).flatMap((text) => {
      const [, port, protocol = 'tcp'] = /^(\d{1,5})(?:\/(tcp|udp))?$/.exec(text) ?? [];
      if (port === undefined) throw new BuildFailure(`Line ${line}: "${text}" is not a port.`, { line });
      return protocol === 'tcp' ? [Number(port)] : [];
    });
  }

  async #run({ line, text }: Instruction, command: CommandForm): Promise<void> {
    const { config } = this.#position;
    const words = typeof command === 'string' ? [...config.shell, command] : command;
    const args = Object.fromEntries(this.#args);
    const env = { ...args, ...config.env };
    const { user = config.usualUser, workdir } = config;
    await this.#step(line, text, ['run', words, env, user, workdir], async (sandbox) => {
      // A login shell resets PATH.
      const path = env['PATH'] === undefined ? '' : `export PATH=${quoted(env['PATH'])}; `;
      const request = { command: `${path}exec ${quotedAll(words)}`, cwd: workdir, env };
      await this.#exec(
        sandbox,
        { ...request, user: await this.#userName(sandbox, user, line) },
        { line, text },
      );
    });
  }

  async #workdir({ line, text }: Instruction, value: string): Promise<void> {
    const workdir = posix.resolve(this.#position.config.workdir, value);
    this.#set({ workdir });
    await this.#step(line, text, ['workdir', workdir], (sandbox) =>
      this.#exec(sandbox, { command: `mkdir -p ${quoted(workdir)}`, user: 'root', cwd: '/' }, { line, text }),
    );
  }

  async #copy({ line, text }: Instruction, copy: CopyInstruction): Promise<void> {
    const paths =
      typeof copy.paths === 'string'
        ? expandList(copy.paths, this.#lookUp)
        : copy.paths.map((path) => expand(path, this.#lookUp));
    const target = paths.pop() ?? '';
    const order: CopyOrder = {
      target: resolved(this.#position.config.workdir, target),
      isAdd: copy.isAdd,
      chown: copy.chown === undefined ? undefined : expand(copy.chown, this.#lookUp),
      chmod: copy.chmod,
    };
    if (copy.from !== undefined)
      return this.#copyFrom({ line, text }, expand(copy.from, this.#lookUp), paths, order);
    const sources = (await Promise.all(paths.map((path) => this.#parts.context.find(path)))).flat();
    if (sources.length === 0)
      throw new BuildFailure(`Line ${line}: the build context has no ${paths.join(', ')}.`, { line });
    await this.#step(line, text, ['copy', order, await digestOf(sources)], (sandbox) =>
      this.#place(sandbox, placementOfFiles(sources, order), { line, text }),
    );
  }

  /** Packs the files in a sandbox of the other stage. */
  async #copyFrom(
    about: { readonly line: number; readonly text: string },
    from: string,
    paths: readonly string[],
    order: CopyOrder,
  ): Promise<void> {
    const { torpor, signal } = this.#parts;
    const other = await this.#parts.resolve(from, about.line);
    await this.#step(about.line, about.text, ['copy from', other.key, paths, order], async (sandbox) => {
      const source = await torpor.sandboxes.create(
        { ...other.at, name: this.#parts.newSandboxName() },
        { signal },
      );
      try {
        const isDirectory: boolean[] = [];
        for (const path of paths) {
          const asked = { command: `[ -d ${quoted(absolute(path))} ]`, user: 'root', cwd: '/' };
          isDirectory.push((await torpor.sandboxes.exec(source.id, asked, { signal })).exitCode === 0);
        }
        const names = paths.map((path, index) => (isDirectory[index] === true ? null : posix.basename(path)));
        const { place, archive, command } = commandFor(names, order);
        const packing = paths.flatMap((path, index) => {
          const into = `${place}/files/${index}`;
          const end = isDirectory[index] === true ? '/.' : '';
          return [`mkdir -p ${into}`, `cp -a ${quoted(`${absolute(path)}${end}`)} ${into}/`];
        });
        const pack = ['set -e', ...packing, `tar -c -f ${archive} -C ${place}/files .`].join('\n');
        await this.#exec(
          { id: source.id, name: source.name ?? source.id },
          { command: pack, user: 'root', cwd: '/' },
          about,
        );
        const bytes = await torpor.sandboxes.files(source.id).read(archive, { user: 'root', signal });
        const write: Placement['write'] = async () => {
          await torpor.sandboxes.files(sandbox.id).write(archive, bytes, { user: 'root', signal });
        };
        await this.#place(sandbox, { command, write }, about);
      } finally {
        await torpor.sandboxes.kill(source.id);
      }
    });
  }

  async #place(
    sandbox: RunningSandbox,
    { command, write }: Placement,
    about: { readonly line: number; readonly text: string },
  ): Promise<void> {
    await write(this.#parts.torpor, sandbox.id, this.#parts.signal);
    await this.#exec(sandbox, { command, user: 'root', cwd: '/' }, about);
  }

  /** Runs the step, unless its checkpoint exists, and seals a checkpoint of it. */
  async #step(
    line: number,
    text: string,
    dependsOn: readonly unknown[],
    work: (sandbox: RunningSandbox) => Promise<void>,
  ): Promise<void> {
    const { torpor, signal, useCache, say } = this.#parts;
    const key = createHash('sha256')
      .update(JSON.stringify([this.#position.key, ...dependsOn]))
      .digest('hex');
    const name = `build-${key.slice(0, 40)}`;
    const [known] = useCache ? await torpor.checkpoints.named(name, { signal }) : [];
    if (known !== undefined) {
      say(`CACHED ${text}`);
      await this.close();
      this.#position = { ...this.#position, at: { from: known.id }, key };
      return;
    }
    say(line === 0 ? 'Sealing the files' : `Line ${line}: ${text}`);
    const sandbox = await this.#open();
    await work(sandbox);
    const sealed = await torpor.sandboxes.snapshot(
      sandbox.id,
      { name, expiresInSeconds: CACHE_SECONDS },
      { signal },
    );
    this.#position = { ...this.#position, at: { from: sealed.id }, key };
  }

  /** The sandbox of the stage runs on from step to step. */
  async #open(): Promise<RunningSandbox> {
    const { torpor, signal, name: template } = this.#parts;
    if (this.#sandbox !== undefined) return this.#sandbox;
    const name = this.#parts.newSandboxName();
    const { id } = await torpor.sandboxes.create(
      { ...this.#position.at, name, metadata: { 'template-build': template } },
      { signal },
    );
    this.#sandbox = { id, name };
    return this.#sandbox;
  }

  async #exec(
    { id, name }: RunningSandbox,
    request: Exclude<Parameters<Torpor['sandboxes']['execStream']>[1], string>,
    { line, text }: { readonly line: number; readonly text: string },
  ): Promise<void> {
    const { torpor, signal, output } = this.#parts;
    for await (const event of torpor.sandboxes.execStream(id, request, { signal })) {
      if (event.type === 'stdout' || event.type === 'stderr') output(event.data);
      if (event.type !== 'end' || event.exitCode === 0) continue;
      throw new BuildFailure(`Line ${line}: ${text} ended with exit code ${event.exitCode}.`, {
        line,
        sandbox: name,
      });
    }
  }

  /** Commands run as users with names. */
  async #userName(
    sandbox: RunningSandbox,
    user: string | undefined,
    line: number,
  ): Promise<string | undefined> {
    if (user === undefined || !isNumber(user)) return user;
    const { torpor, signal } = this.#parts;
    const passwd = await torpor.sandboxes.files(sandbox.id).readText('/etc/passwd', { user: 'root', signal });
    const found = passwd.split('\n').find((account) => account.split(':')[2] === user);
    if (found !== undefined) return found.split(':')[0] ?? user;
    throw new BuildFailure(`Line ${line}: the user ${user} has no account in /etc/passwd.`, {
      line,
      sandbox: sandbox.name,
    });
  }
}

function isNumber(user: string): boolean {
  return /^\d+$/.test(user);
}

function absolute(path: string): string {
  return posix.resolve('/', path);
}

/** Keeps the `/` at the end, which says that the target is a directory. */
function resolved(workdir: string, target: string): string {
  const isDirectory = /(^|\/)\.?$/.test(target);
  const path = posix.resolve(workdir, target);
  return isDirectory && !path.endsWith('/') ? `${path}/` : path;
}
