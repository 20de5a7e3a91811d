/** Files of one sandbox: bytes in and out, and directories. */
import {
  type DirectoryListing,
  directoryListingSchema,
  type SandboxId,
  type WrittenFile,
  writtenFileSchema,
} from '@torpor/protocol';
import type { JsonCalls, ReadOptions } from './json-calls.ts';
import type { Call } from './transport.ts';
import { validated } from './validate.ts';

export class Files {
  private readonly calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.calls = calls;
  }

  /** The whole file. */
  async read(id: SandboxId, path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const response = await this.ask('GET', id, path, { whole: true, ...options });
    return new Uint8Array(await response.arrayBuffer());
  }

  async readText(id: SandboxId, path: string, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(id, path, options));
  }

  /** The file as it arrives, for what is too large to hold. A break in the middle is thrown, not mended. */
  async stream(id: SandboxId, path: string, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const response = await this.ask('GET', id, path, options);
    return response.body ?? new Blob([]).stream();
  }

  async list(id: SandboxId, path: string, options: ReadOptions = {}): Promise<DirectoryListing> {
    return validated(await this.ask('GET', id, path, { whole: true, ...options }), directoryListingSchema);
  }

  async write(
    id: SandboxId,
    path: string,
    contents: NonNullable<Call['body']>,
    options: ReadOptions = {},
  ): Promise<WrittenFile> {
    const headers = { 'content-type': 'application/octet-stream' };
    const response = await this.ask('PUT', id, path, { body: contents, headers, ...options });
    return validated(response, writtenFileSchema);
  }

  async remove(id: SandboxId, path: string, options: ReadOptions = {}): Promise<void> {
    await this.ask('DELETE', id, path, options);
  }

  private ask(method: string, id: SandboxId, path: string, rest: Partial<Call>): Promise<Response> {
    return this.calls.transport.ask({
      method,
      path: `/v1/sandboxes/${encodeURIComponent(id)}/files`,
      query: { path },
      ...rest,
    });
  }
}
