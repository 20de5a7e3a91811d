/** Nodes of a cluster, for operator keys. */
import {
  type ForgottenNode,
  forgottenNodeSchema,
  type NodeView,
  nodeViewSchema,
  pageSchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';

const nodePage = pageSchema(nodeViewSchema);

export class Nodes {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  /** Empty on a server that is alone. */
  async list(options: ReadOptions = {}): Promise<NodeView[]> {
    return (await this.#calls.get('/v1/nodes', nodePage, options)).items;
  }

  get(name: string, options: ReadOptions = {}): Promise<NodeView> {
    return this.#calls.get(pathOf(name), nodeViewSchema, options);
  }

  /** The node gets no new sandboxes. */
  cordon(name: string, options: MutationOptions = {}): Promise<NodeView> {
    return this.#calls.post(`${pathOf(name)}/cordon`, nodeViewSchema, undefined, options);
  }

  uncordon(name: string, options: MutationOptions = {}): Promise<NodeView> {
    return this.#calls.post(`${pathOf(name)}/uncordon`, nodeViewSchema, undefined, options);
  }

  /** Begins to move its sandboxes to other nodes. `get` has the progress. */
  drain(name: string, options: MutationOptions = {}): Promise<NodeView> {
    return this.#calls.post(`${pathOf(name)}/drain`, nodeViewSchema, undefined, options);
  }

  /** Gives up a node that will not come back. Sandboxes of which nothing is in the store are lost. */
  forget(name: string, options: MutationOptions = {}): Promise<ForgottenNode> {
    return this.#calls.post(`${pathOf(name)}/forget`, forgottenNodeSchema, undefined, options);
  }
}

function pathOf(name: string): string {
  return `/v1/nodes/${encodeURIComponent(name)}`;
}
