/** A Dockerfile as stages and instructions. What is not supported is refused here, with its line, before anything runs. */
import { DockerfileParser, type Instruction as Parsed } from 'dockerfile-ast';
import { BuildFailure } from './build-failure.ts';
import { type Heredocs, heredocsOf, type InlineFile } from './heredocs.ts';

/** Words are run as they are; a text is run by the shell of the stage. */
export type CommandForm = readonly string[] | string;

export type Instruction = {
  readonly line: number;
  /** As it was written, on one line. */
  readonly text: string;
} & (
  | { readonly is: 'run' | 'cmd' | 'entrypoint'; readonly command: CommandForm }
  | { readonly is: 'copy'; readonly copy: CopyInstruction }
  | { readonly is: 'env' | 'label'; readonly pairs: readonly (readonly [name: string, value: string])[] }
  | { readonly is: 'arg'; readonly args: readonly Arg[] }
  | { readonly is: 'workdir' | 'user' | 'expose'; readonly value: string }
  | { readonly is: 'shell'; readonly words: readonly string[] }
);

interface Arg {
  readonly name: string;
  /** Before its variables are replaced. */
  readonly value: string | undefined;
}

/** Arguments before their variables are replaced. */
export interface CopyInstruction {
  /** Whether local archives are unpacked. */
  readonly isAdd: boolean;
  readonly paths: readonly string[] | string;
  /** Files whose content stands in the Dockerfile. */
  readonly inline: readonly InlineFile[];
  readonly from: string | undefined;
  readonly chown: string | undefined;
  readonly chmod: string | undefined;
}

export interface Stage {
  readonly line: number;
  readonly name: string | null;
  /** Before its variables are replaced. */
  readonly from: string;
  readonly instructions: readonly Instruction[];
}

export interface Dockerfile {
  /** ARG before the first FROM: defaults for the lines with FROM. */
  readonly args: readonly Arg[];
  readonly stages: readonly Stage[];
}

const FLAGS: Readonly<Record<string, readonly string[]>> = {
  COPY: ['from', 'chown', 'chmod'],
  ADD: ['chown', 'chmod'],
};

const NOT_SUPPORTED: Readonly<Record<string, string>> = {
  ONBUILD: 'triggers belong to images, and a build makes a template',
  VOLUME: 'files of a sandbox are all kept, so leave the line out',
  HEALTHCHECK: 'use --ready to say when the template is ready',
  STOPSIGNAL: 'a sandbox is put to sleep and not stopped, so leave the line out',
};

export function parseDockerfile(text: string): Dockerfile {
  const lines = text.split(/\r?\n/);
  const parsed = DockerfileParser.parse(text);
  if (parsed.getEscapeCharacter() !== '\\')
    throw new BuildFailure('Only \\ is supported as the escape character.', { line: 1 });
  const args: Arg[] = [];
  const stages: { line: number; name: string | null; from: string; instructions: Instruction[] }[] = [];
  for (const one of parsed.getInstructions()) {
    const line = one.getRange().start.line + 1;
    const keyword = one.getKeyword();
    if (keyword === 'FROM') {
      stages.push({ ...fromOf(one, line), instructions: [] });
      continue;
    }
    const instruction = instructionOf(one, keyword, line, heredocsOf(one, lines));
    const stage = stages.at(-1);
    if (stage !== undefined) stage.instructions.push(instruction);
    else if (instruction.is === 'arg') args.push(...instruction.args);
    else throw refused(line, `${keyword} stands before the first FROM`);
  }
  if (stages.length === 0) throw new BuildFailure('The Dockerfile has no FROM.');
  return { args, stages };
}

function fromOf(one: Parsed, line: number) {
  refuseFlags(one, 'FROM', line);
  const [from = '', as, name, ...rest] = contentOf(one).split(/\s+/);
  const isValid =
    from !== '' && (as === undefined || (/^as$/i.test(as) && name !== undefined)) && rest.length === 0;
  if (!isValid) throw refused(line, 'FROM takes an image or a template, and optionally AS and a name');
  if (from.toLowerCase() === 'scratch')
    throw refused(
      line,
      'FROM scratch is not supported: steps need a shell',
      'Begin with an image, or with the template base.',
    );
  return { line, from, name: name?.toLowerCase() ?? null };
}

function instructionOf(
  one: Parsed,
  keyword: string,
  line: number,
  heredocs: Heredocs | undefined,
): Instruction {
  const content = heredocs?.firstLine ?? contentOf(one);
  const flags = flagsOf(one).map((flag) => `--${flag.getName()}=${flag.getValue() ?? ''} `);
  const about = { line, text: `${keyword} ${flags.join('')}${content}`.trim() };
  refuseFlags(one, keyword, line);
  if (content === '') throw refused(line, `${keyword} has no arguments`);
  switch (keyword) {
    case 'RUN':
      return {
        ...about,
        is: 'run',
        command: heredocs === undefined ? formOf(content) : scriptOf(heredocs, line),
      };
    case 'CMD':
      return { ...about, is: 'cmd', command: formOf(content) };
    case 'ENTRYPOINT':
      return { ...about, is: 'entrypoint', command: formOf(content) };
    case 'COPY':
    case 'ADD':
      return {
        ...about,
        is: 'copy',
        copy: copyOf(one, keyword, heredocs?.rest ?? content, line, heredocs?.files ?? []),
      };
    case 'ENV':
      return { ...about, is: 'env', pairs: pairsOf(one, line) };
    case 'LABEL':
      return { ...about, is: 'label', pairs: pairsOf(one, line) };
    case 'MAINTAINER':
      return { ...about, is: 'label', pairs: [['maintainer', content]] };
    case 'ARG':
      return { ...about, is: 'arg', args: (content.match(WORD) ?? []).map((word) => argOf(word, line)) };
    case 'WORKDIR':
      return { ...about, is: 'workdir', value: content };
    case 'USER':
      if (content.includes(':'))
        throw refused(line, 'USER with a group is not supported', 'Name the user alone.');
      return { ...about, is: 'user', value: content };
    case 'EXPOSE':
      return { ...about, is: 'expose', value: content };
    case 'SHELL': {
      const words = formOf(content);
      if (typeof words === 'string' || words.length === 0)
        throw refused(line, 'SHELL takes a list of words in JSON');
      return { ...about, is: 'shell', words };
    }
    default:
      throw refused(line, `${keyword} is not supported`, NOT_SUPPORTED[keyword]);
  }
}

/** Up to a space outside quotes. */
const WORD = /(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+/gs;

function argOf(word: string, line: number): Arg {
  const [, name, value] = /^([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?$/s.exec(word) ?? [];
  if (name === undefined) throw refused(line, 'ARG takes names, with or without values');
  return { name, value };
}

/** The arguments without flags, comments and line breaks. */
function contentOf(one: Parsed): string {
  return (one.getRawArgumentsContent() ?? '')
    .split('\n')
    .filter((line) => !/^\s*#/.test(line))
    .join('\n')
    .replace(/\\[ \t]*\r?\n/g, '')
    .trim();
}

/** The parser's own JSON form loses spaces. */
function formOf(content: string): CommandForm {
  if (!content.startsWith('[')) return content;
  try {
    const words: unknown = JSON.parse(content);
    if (Array.isArray(words) && words.every((word) => typeof word === 'string')) return words as string[];
  } catch {
    // As for Docker, what is not JSON is a command of the shell.
  }
  return content;
}

/** A here-document alone is a script; behind a command it belongs to the shell, which gets all lines. */
function scriptOf({ rest, text, files }: Heredocs, line: number): string {
  const [script] = files;
  if (rest !== '' || files.length > 1 || script === undefined) return text;
  if (script.content.startsWith('#!'))
    throw refused(line, 'an interpreter in a here-document is not supported', 'Name it: RUN python3 <<EOF.');
  return script.content;
}

function copyOf(
  one: Parsed,
  keyword: string,
  content: string,
  line: number,
  inline: readonly InlineFile[],
): CopyInstruction {
  const flags = new Map(flagsOf(one).map((flag) => [flag.getName(), flag.getValue() ?? '']));
  const paths = formOf(content);
  const isUrl = /^(?:https?|ftp|git):\/\/|^git@/;
  const listed = typeof paths === 'string' ? paths.split(/\s+/).filter(Boolean) : paths;
  if (listed.length + inline.length < 2 || listed.length === 0)
    throw refused(line, `${keyword} takes at least one source and a target`);
  if (listed.some((path) => isUrl.test(path)))
    throw refused(line, `${keyword} from an address is not supported`, 'Fetch it with RUN.');
  const [from, chown, chmod] = [flags.get('from'), flags.get('chown'), flags.get('chmod')];
  if (chmod !== undefined && !/^[0-7]{3,4}$/.test(chmod))
    throw refused(line, '--chmod takes an octal number');
  if (from !== undefined && inline.length > 0)
    throw refused(line, 'a here-document comes from no stage', 'Leave --from out.');
  return { isAdd: keyword === 'ADD', paths, inline, from, chown, chmod };
}

function pairsOf(one: Parsed, line: number): [string, string][] {
  const properties = (one as unknown as { getProperties(): Property[] }).getProperties();
  return properties.map((property) => {
    const value = property.getUnescapedValue();
    if (value === null || property.getName() === '') throw refused(line, 'a name in it has no value');
    return [property.getName(), value];
  });
}

interface Property {
  getName(): string;
  getUnescapedValue(): string | null;
}

interface FlagLike {
  getName(): string;
  getValue(): string | null;
}

function flagsOf(one: Parsed): readonly FlagLike[] {
  return (one as unknown as { getFlags?(): FlagLike[] }).getFlags?.() ?? [];
}

function refuseFlags(one: Parsed, keyword: string, line: number): void {
  for (const flag of flagsOf(one))
    if (FLAGS[keyword]?.includes(flag.getName()) !== true)
      throw refused(line, `${keyword} --${flag.getName()} is not supported`);
}

function refused(line: number, why: string, instead?: string): BuildFailure {
  return new BuildFailure(`Line ${line}: ${why}.${instead === undefined ? '' : ` (${instead})`}`, { line });
}
