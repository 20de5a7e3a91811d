/** Calls whose response is JSON with a schema. */
import type { Call, Query, Transport } from './transport.ts';
import { type Schema, validated } from './validate.ts';

export interface CallOptions {
  /** Aborts the call, also between two attempts, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

export interface ReadOptions extends CallOptions {
  /** How often this read is repeated, instead of the client's own number; 0 for never. */
  readonly retries?: number | undefined;
}

/** A mutation is sent once. When its response is lost, the caller decides whether to send it again. */
export interface MutationOptions extends CallOptions {
  /** The server executes two requests with the same key once: the second gets the response of the first. */
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

  async put<T>(path: string, schema: Schema<T>, json: unknown, options: MutationOptions = {}): Promise<T> {
    return validated(
      await this.transport.ask({ method: 'PUT', path, json, whole: true, ...options }),
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
