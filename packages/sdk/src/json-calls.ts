/** Calls whose answer is JSON of a known form. */
import type { Call, Query, Transport } from './transport.ts';
import { type Schema, validated } from './validate.ts';

export interface CallOptions {
  /** Ends the waiting, also between two attempts, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

export interface ReadOptions extends CallOptions {
  /** How often this read is tried again, instead of the client's own number; 0 for never. */
  readonly retries?: number | undefined;
}

/** A mutation is sent once. Whether to send it again when its answer was lost is the caller's to decide. */
export interface MutationOptions extends CallOptions {
  /** Two requests with one key are one request: the second gets the answer of the first. */
  readonly idempotencyKey?: string | undefined;
}

export class JsonCalls {
  readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }

  async get<T>(
    path: string,
    schema: Schema<T>,
    options: ReadOptions & { readonly query?: Query } = {},
  ): Promise<T> {
    return validated(await this.transport.ask({ method: 'GET', path, whole: true, ...options }), schema);
  }

  async post<T>(
    path: string,
    schema: Schema<T>,
    json: unknown,
    options: MutationOptions & Pick<Call, 'query' | 'repeatUnderKey'> = {},
  ): Promise<T> {
    return validated(
      await this.transport.ask({ method: 'POST', path, json, whole: true, ...options }),
      schema,
    );
  }

  async patch<T>(path: string, schema: Schema<T>, json: unknown, options: MutationOptions = {}): Promise<T> {
    return validated(
      await this.transport.ask({ method: 'PATCH', path, json, whole: true, ...options }),
      schema,
    );
  }

  async delete(path: string, options: MutationOptions & { readonly query?: Query } = {}): Promise<Response> {
    return this.transport.ask({ method: 'DELETE', path, whole: true, ...options });
  }
}
