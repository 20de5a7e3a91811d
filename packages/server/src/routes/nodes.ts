/** Nodes of a cluster: what each has, and what an operator does with them. */
import { forgottenNodeSchema, nodeNameSchema, nodeViewSchema, pageSchema } from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

const params = z.object({ name: nodeNameSchema });
const tags = ['nodes'];

export function nodeRoutes(app: RoutesApp, { engine }: RouteContext): void {
  app.get(
    '/v1/nodes',
    {
      schema: {
        operationId: 'listNodes',
        summary: 'Nodes',
        description:
          'For operator keys. The nodes that share the database, by name. A server that is alone has none.',
        tags,
        response: { 200: json('All nodes.', pageSchema(nodeViewSchema)), ...errors('forbidden') },
      },
    },
    async ({ identity, deadline }) => {
      requireOperator(identity);
      return { items: await deadline.run(() => engine.nodes()), nextCursor: null };
    },
  );

  app.get(
    '/v1/nodes/:name',
    {
      schema: {
        operationId: 'getNode',
        summary: 'One node, with the progress of its drain',
        description: 'For operator keys.',
        tags,
        params,
        response: {
          200: json('The node.', nodeViewSchema),
          ...errors('forbidden', 'not_found', 'capability_unsupported'),
        },
      },
    },
    async ({ identity, params: { name }, deadline }) => {
      requireOperator(identity);
      return deadline.run(() => engine.node(name));
    },
  );

  const changes = [
    {
      word: 'cordon',
      operationId: 'cordonNode',
      summary: 'Give a node no new sandboxes',
      description:
        'For operator keys. What runs there runs on. Sandboxes that sleep there wake on other nodes when they are replicated.',
      change: (name: string) => engine.cordonNode(name),
    },
    {
      word: 'uncordon',
      operationId: 'uncordonNode',
      summary: 'Give a node new sandboxes again',
      description: 'For operator keys. Ends a drain too.',
      change: (name: string) => engine.uncordonNode(name),
    },
    {
      word: 'drain',
      operationId: 'drainNode',
      summary: 'Move the sandboxes of a node to other nodes',
      description:
        'For operator keys. Returns at once; the node does the work, and `GET /v1/nodes/{name}` has the progress. May be repeated.',
      change: (name: string) => engine.beginDrain(name),
    },
  ] as const;
  for (const { word, operationId, summary, description, change } of changes) {
    app.post(
      `/v1/nodes/:name/${word}`,
      {
        schema: {
          operationId,
          summary,
          description,
          tags,
          params,
          response: {
            200: json('The node.', nodeViewSchema),
            ...errors('forbidden', 'not_found', 'capability_unsupported', 'unreachable'),
          },
        },
      },
      async ({ identity, params: { name }, deadline }) => {
        requireOperator(identity);
        await deadline.run(() => change(name));
        return deadline.run(() => engine.node(name));
      },
    );
  }

  app.post(
    '/v1/nodes/:name/forget',
    {
      schema: {
        operationId: 'forgetNode',
        summary: 'Give up a node that will not come back',
        description:
          'For operator keys. Refused while the node is alive. Its sandboxes go on from their newest checkpoint in the store; ' +
          'those of which nothing is there are lost. When the machine comes back after all, it keeps what it had as recovered ' +
          'checkpoints.',
        tags,
        params,
        response: {
          200: json('What became of its sandboxes.', forgottenNodeSchema),
          ...errors('forbidden', 'not_found', 'conflict', 'capability_unsupported'),
        },
      },
    },
    async ({ identity, params: { name }, deadline }) => {
      requireOperator(identity);
      return { name, ...(await deadline.run(() => engine.forgetNode(name))) };
    },
  );
}
