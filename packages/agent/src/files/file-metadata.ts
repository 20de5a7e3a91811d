/**
 * Metadata that clients attach to files. It is kept in extended attributes of the file. Where the file system has none, it is
 * kept by path in a file of the agent: there it follows a file that the API moves or removes, and not a file that a program
 * in the sandbox moves or removes.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { METADATA_HEADER_PREFIX } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import type { ExtendedAttributes } from './extended-attributes.ts';
import { withFileErrors } from './file-errors.ts';
import { isInside } from './paths.ts';

export type Metadata = Readonly<Record<string, string>>;

const MAX_BYTES_PER_FILE = 8 * 1024;
const MAX_FILES = 10_000;

export class FileMetadata {
  readonly #storeFile: string;
  readonly #attributes: ExtendedAttributes;
  #loaded: Promise<Map<string, Metadata>> | undefined;
  /** Writes run one after the other, so that the newest state is written last. */
  #saving: Promise<void> = Promise.resolve();

  constructor(storeFile: string, attributes: ExtendedAttributes) {
    this.#storeFile = storeFile;
    this.#attributes = attributes;
  }

  async of(path: string): Promise<Metadata> {
    const found = await this.#attributes.read(path);
    return Object.keys(found).length > 0 ? found : ((await this.#all()).get(path) ?? {});
  }

  /** Replaces the metadata of the path. A new file does not inherit the metadata of the file it replaces. */
  async set(path: string, metadata: Metadata): Promise<void> {
    const isKept = await this.#attributes.replace(path, metadata);
    return this.#setBeside(path, isKept ? {} : metadata);
  }

  async #setBeside(path: string, metadata: Metadata): Promise<void> {
    const all = await this.#all();
    const isEmpty = Object.keys(metadata).length === 0;
    if (isEmpty && !all.has(path)) return;
    if (!isEmpty && !all.has(path) && all.size >= MAX_FILES) {
      throw new TorporError('invalid_request', `At most ${MAX_FILES} files can have metadata.`);
    }
    if (isEmpty) all.delete(path);
    else all.set(path, metadata);
    await this.#save();
  }

  /** Follows a move or, without `to`, a removal of a file or a directory with everything in it. */
  async moved(from: string, to: string | undefined): Promise<void> {
    const all = await this.#all();
    const affected = [...all].filter(([path]) => isInside(path, from));
    if (affected.length === 0) return;
    for (const [path] of affected) all.delete(path);
    if (to !== undefined)
      for (const [path, metadata] of affected) all.set(to + path.slice(from.length), metadata);
    await this.#save();
  }

  #all(): Promise<Map<string, Metadata>> {
    this.#loaded ??= readFile(this.#storeFile, 'utf8')
      .then(
        (text) => new Map(parsePairs(text)),
        () => new Map<string, Metadata>(),
      )
      .catch(() => new Map<string, Metadata>());
    return this.#loaded;
  }

  #save(): Promise<void> {
    this.#saving = this.#saving
      .catch(() => {})
      .then(async () => {
        // Written as pairs, not as an object: V8's JSON.parse may confuse two escaped keys.
        const text = JSON.stringify([...(await this.#all())]);
        await mkdir(dirname(this.#storeFile), { recursive: true });
        await writeFile(`${this.#storeFile}.new`, text, { mode: 0o600 });
        await rename(`${this.#storeFile}.new`, this.#storeFile);
      });
    return withFileErrors(this.#storeFile, () => this.#saving);
  }
}

/** Programs in the sandbox can write to the file. Throws when it has another form. */
function parsePairs(text: string): [string, Metadata][] {
  const pairs: unknown = JSON.parse(text);
  if (!Array.isArray(pairs) || !pairs.every(isPair)) throw new Error('The metadata file is damaged.');
  return pairs;
}

function isPair(pair: unknown): pair is [string, Metadata] {
  if (!Array.isArray(pair) || typeof pair[0] !== 'string') return false;
  const metadata: unknown = pair[1];
  if (typeof metadata !== 'object' || metadata === null) return false;
  return Object.values(metadata).every((value) => typeof value === 'string');
}

export function metadataOfHeaders(headers: NodeJS.Dict<string | string[]>): Metadata {
  const metadata: Record<string, string> = {};
  let size = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(METADATA_HEADER_PREFIX) || value === undefined) continue;
    const key = name.slice(METADATA_HEADER_PREFIX.length);
    const text = Array.isArray(value) ? value.join(', ') : value;
    if (key === '')
      throw new TorporError('invalid_request', 'A metadata header needs a name after its prefix.');
    metadata[key] = text;
    size += key.length + text.length;
  }
  if (size > MAX_BYTES_PER_FILE) {
    throw new TorporError(
      'invalid_request',
      `The metadata of a file may have at most ${MAX_BYTES_PER_FILE} bytes.`,
    );
  }
  return metadata;
}
