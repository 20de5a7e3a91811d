/** The files and directories of one sandbox. */
import {
  type DirectoryListing,
  directoryListingSchema,
  type SandboxId,
  type WrittenFile,
  writtenFileSchema,
} from '@torpor/protocol';
import type { CallOptions, JsonCalls, ReadOptions } from './json-calls.ts';
import type { Call } from './transport.ts';
import { validated } from './validate.ts';

export interface FileChangeOptions extends CallOptions {
  /** The user who reads or writes; default: the sandbox's own user. */
  readonly user?: string | undefined;
}

export interface FileOptions extends FileChangeOptions, ReadOptions {}

export interface FileReadOptions extends FileOptions {
  /** false: a paused sandbox is not woken, and the call is a `ConflictError`. */
  readonly wake?: boolean | undefined;
}

/**
 * Paths are absolute, or relative to the sandbox's home. Each call wakes a sandbox that sleeps, unless `wake` is false.
 *
 * ```ts
 * await sandbox.files.write('app/config.json', JSON.stringify(config));
 * const text = await sandbox.files.readText('app/config.json');
 * ```
 */
export class Files {
  readonly #calls: JsonCalls;
  readonly #id: SandboxId;

  constructor(calls: JsonCalls, id: SandboxId) {
    this.#calls = calls;
    this.#id = id;
  }

  /** The whole file. */
  async read(path: string, options: FileReadOptions = {}): Promise<Uint8Array> {
    const response = await this.#ask('GET', path, options, { whole: true });
    return new Uint8Array(await response.arrayBuffer());
  }

  async readText(path: string, options: FileReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** The file as a stream, for files too large for memory. A broken connection is thrown, not resumed. */
  async stream(path: string, options: FileReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const response = await this.#ask('GET', path, options);
    return response.body ?? new Blob([]).stream();
  }

  async list(path: string, options: FileReadOptions = {}): Promise<DirectoryListing> {
    return validated(await this.#ask('GET', path, options, { whole: true }), directoryListingSchema);
  }

  /** Creates missing parent directories. Sent once. */
  async write(
    path: string,
    contents: NonNullable<Call['body']>,
    options: FileChangeOptions = {},
  ): Promise<WrittenFile> {
    const headers = { 'content-type': 'application/octet-stream' };
    const response = await this.#ask('PUT', path, options, { body: contents, headers });
    return validated(response, writtenFileSchema);
  }

  async remove(path: string, options: FileChangeOptions = {}): Promise<void> {
    await this.#ask('DELETE', path, options);
  }

  #ask(
    method: string,
    path: string,
    { user, wake, signal, retries }: FileReadOptions,
    rest: Partial<Call> = {},
  ): Promise<Response> {
    return this.#calls.transport.ask({
      method,
      path: `/v1/sandboxes/${encodeURIComponent(this.#id)}/files`,
      query: { path, user, wake },
      signal,
      retries,
      ...rest,
    });
  }
}
