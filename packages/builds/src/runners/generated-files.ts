/** Files that a runner made. They are untrusted until their names, sizes and number are checked. */
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
/** Directories that tools create in the sandbox. A runner's version of them could mislead the tools. */
const RESERVED_NAMES = new Set(['.git', 'node_modules']);

export function textFile(path: string, text: string): GeneratedFile {
  return { path, content: new TextEncoder().encode(text), executable: false };
}

export function textOf(file: GeneratedFile): string {
  return new TextDecoder().decode(file.content);
}

/** Returns the files sorted by path. Throws `invalid_request` when a file must not be written. */
export function checkFiles(files: readonly GeneratedFile[], limits: FileLimits): GeneratedFile[] {
  if (files.length === 0) throw invalid('The runner made no files.');
  if (files.length > limits.count) {
    throw invalid(`The runner made ${files.length} files; ${limits.count} are allowed.`);
  }
  let total = 0;
  for (const { path, content } of files) {
    refusePath(path);
    total += content.byteLength;
    if (content.byteLength > limits.fileBytes) {
      throw invalid(`${quotePath(path)} has ${content.byteLength} bytes; ${limits.fileBytes} are allowed.`);
    }
    if (total > limits.totalBytes)
      throw invalid(`The files have more than ${limits.totalBytes} bytes together.`);
  }
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  refuseConflicts(sorted.map(({ path }) => path));
  return sorted;
}

function refusePath(path: string): void {
  const parts = path.split('/');
  const wrong =
    path === '' || path.length > MAX_PATH
      ? 'is empty or too long for a path'
      : !path.isWellFormed() || hasControlCharacters(path)
        ? 'has characters that no file name should have'
        : path.includes('\\') || /^[A-Za-z]:/.test(path) || path.startsWith('~')
          ? 'is not a path below the workspace'
          : parts.some((part) => part === '' || part === '.' || part === '..')
            ? 'is not a path below the workspace'
            : parts.length > MAX_DEPTH || parts.some((part) => Buffer.byteLength(part) > MAX_PART)
              ? 'is too deep or has too long a name'
              : parts.some((part) => RESERVED_NAMES.has(part.toLowerCase()))
                ? 'belongs to a tool'
                : undefined;
  if (wrong !== undefined) throw invalid(`${quotePath(path)} ${wrong}.`);
}

function hasControlCharacters(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
  return /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text);
}

/** Refuses duplicate files, and a file whose path is a directory of another file. */
function refuseConflicts(paths: readonly string[]): void {
  const files = new Set(paths);
  if (files.size < paths.length) throw invalid('The runner made a file twice.');
  for (const path of paths) {
    for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1)) {
      if (files.has(path.slice(0, at)))
        throw invalid(`${quotePath(path.slice(0, at))} is a file and a directory.`);
    }
  }
}

/** Keeps untrusted text in an error message short and on one line. */
function quotePath(path: string): string {
  return JSON.stringify(path.slice(0, 80).toWellFormed());
}

function invalid(message: string): TorporError {
  return new TorporError('invalid_request', message, {
    hint: 'The files of a runner are checked before they are written; the log of the build has details.',
  });
}
