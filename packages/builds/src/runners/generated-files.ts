/** Files that a runner made. They are a stranger's until they were checked: names, sizes and number. */
import { TorporError } from '@torpor/protocol';

export interface GeneratedFile {
  /** Relative to the workspace, parts separated by `/`. */
  readonly path: string;
  readonly content: Uint8Array;
  readonly executable: boolean;
}

export interface FileLimits {
  readonly count: number;
  readonly fileBytes: number;
  readonly totalBytes: number;
}

const MAX_PATH = 512;
const MAX_PART = 200;
const MAX_DEPTH = 24;
/** What belongs to tools and is made inside; brought along, it could only mislead them. */
const NOT_OURS = new Set(['.git', 'node_modules']);

export function textFile(path: string, text: string): GeneratedFile {
  return { path, content: new TextEncoder().encode(text), executable: false };
}

export function textOf(file: GeneratedFile): string {
  return new TextDecoder().decode(file.content);
}

/** The same files in the order of their names; throws `invalid_request` for what must not be written. */
export function checkFiles(files: readonly GeneratedFile[], limits: FileLimits): GeneratedFile[] {
  if (files.length === 0) throw refused('The runner made no files.');
  if (files.length > limits.count) {
    throw refused(`The runner made ${files.length} files; ${limits.count} are allowed.`);
  }
  let total = 0;
  for (const { path, content } of files) {
    refusePath(path);
    total += content.byteLength;
    if (content.byteLength > limits.fileBytes) {
      throw refused(`${shown(path)} has ${content.byteLength} bytes; ${limits.fileBytes} are allowed.`);
    }
    if (total > limits.totalBytes)
      throw refused(`The files have more than ${limits.totalBytes} bytes together.`);
  }
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  refuseClashes(sorted.map(({ path }) => path));
  return sorted;
}

function refusePath(path: string): void {
  const parts = path.split('/');
  const wrong =
    path === '' || path.length > MAX_PATH
      ? 'is no path of a reasonable length'
      : !path.isWellFormed() || hasControlCharacters(path)
        ? 'has characters that no file name should have'
        : path.includes('\\') || /^[A-Za-z]:/.test(path) || path.startsWith('~')
          ? 'is not a path below the workspace'
          : parts.some((part) => part === '' || part === '.' || part === '..')
            ? 'is not a path below the workspace'
            : parts.length > MAX_DEPTH || parts.some((part) => Buffer.byteLength(part) > MAX_PART)
              ? 'is too deep or has too long a name'
              : parts.some((part) => NOT_OURS.has(part.toLowerCase()))
                ? 'belongs to a tool'
                : undefined;
  if (wrong !== undefined) throw refused(`${shown(path)} ${wrong}.`);
}

function hasControlCharacters(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
  return /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text);
}

/** No file twice, and none where another needs a directory. */
function refuseClashes(paths: readonly string[]): void {
  const files = new Set(paths);
  if (files.size < paths.length) throw refused('The runner made a file twice.');
  for (const path of paths) {
    for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1)) {
      if (files.has(path.slice(0, at)))
        throw refused(`${shown(path.slice(0, at))} is a file and a directory.`);
    }
  }
}

/** A stranger's text in an error stays one short line. */
function shown(path: string): string {
  return JSON.stringify(path.slice(0, 80).toWellFormed());
}

function refused(message: string): TorporError {
  return new TorporError('invalid_request', message, {
    hint: 'What a runner makes is checked before anything is written; the log of the build says more.',
  });
}
