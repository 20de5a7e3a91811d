/** Files of another stage, or of an image, for COPY --from: they are found and packed in a sandbox of it. */
import { posix } from 'node:path';
import { quoted, type RunningSandbox, type StepSandboxes } from '@torpor/build-steps';
import { isPattern, pathPattern } from './path-pattern.ts';

export interface StageFile {
  readonly path: string;
  readonly isDirectory: boolean;
}

const LIST = '/tmp/.torpor-list';

export class StageFiles {
  readonly #sandboxes: StepSandboxes;
  readonly #sandbox: RunningSandbox;

  constructor(sandboxes: StepSandboxes, sandbox: RunningSandbox) {
    this.#sandboxes = sandboxes;
    this.#sandbox = sandbox;
  }

  /** What a source stands for; several for a pattern, none when there is nothing. */
  async find(source: string): Promise<StageFile[]> {
    let paths = ['/'];
    for (const part of posix.resolve('/', source).split('/').filter(Boolean)) {
      const next: string[] = [];
      for (const path of paths) next.push(...(await this.#matching(path, part)));
      paths = next;
    }
    const found: StageFile[] = [];
    for (const path of paths)
      if (await this.#is('-e', path)) found.push({ path, isDirectory: await this.#is('-d', path) });
    return found;
  }

  /** Packs the files under their numbers, below `place`. Resolves to the exit code of the command. */
  pack(files: readonly StageFile[], place: string, archive: string): Promise<number> {
    const packing = files.flatMap(({ path, isDirectory }, index) => {
      const into = `${place}/files/${index}`;
      // A link that is named as a source stands for its target.
      const target = `"$(readlink -f ${quoted(path)})"`;
      const copying = isDirectory
        ? `cp -a ${target}/. ${into}/`
        : `cp -a ${target} ${into}/${quoted(posix.basename(path))}`;
      return [`mkdir -p ${into}`, copying];
    });
    return this.#run(['set -e', ...packing, `tar -c -f ${archive} -C ${place}/files .`].join('\n'));
  }

  async #matching(directory: string, part: string): Promise<string[]> {
    if (!isPattern(part)) return [posix.join(directory, part)];
    await this.#run(`ls -A -1 ${quoted(directory)} > ${LIST} 2> /dev/null || :`);
    const names = Buffer.from(await this.#sandboxes.read(this.#sandbox, LIST)).toString();
    return names
      .split('\n')
      .filter((name) => name !== '')
      .filter(pathPattern(part))
      .sort()
      .map((name) => posix.join(directory, name));
  }

  async #is(flag: '-e' | '-d', path: string): Promise<boolean> {
    return (await this.#run(`[ ${flag} ${quoted(path)} ]`)) === 0;
  }

  #run(command: string): Promise<number> {
    return this.#sandboxes.run(this.#sandbox, { command, user: 'root', cwd: '/' });
  }
}
