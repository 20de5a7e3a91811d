/**
 * Snapshots. With E2B they are templates; here they are checkpoints that are kept, and those with a name are templates
 * too. Both go by one call.
 */
import { pageOf, parseSandboxId, TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { lifecycle } from '../http/lifecycle.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';
import { notFound } from './failures.ts';
import { placeOf, snapshotsQuery, tokenOf } from './list-query.ts';
import { namedBy, newName } from './origin.ts';
import { inTurn } from './patience.ts';
import { idParams, templateParams } from './route-words.ts';

export function e2bSnapshotRoutes(app: RoutesApp, parts: RouteParts): void {
  const { engine } = parts;
  const config = { bound: 'lifecycle' } as const;

  app.post(
    '/sandboxes/:id/snapshots',
    {
      config,
      schema: {
        hide: true,
        params: idParams,
        body: z.object({ name: z.string().min(1).max(200).nullish() }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { org } = request.identity;
      const name = request.body.name ? newName(request.body.name, org) : undefined;
      const { checkpoint } = await lifecycle(parts, request, id, async (caller) => {
        const snapshot = await inTurn(parts, request, () => engine.snapshot(caller, id));
        if (name === undefined) return snapshot;
        try {
          // The same name again means the newest.
          await engine.nameTemplate(org, { name, from: snapshot.checkpoint.id }, 'replace');
        } catch (thrown) {
          await engine.letGoOfCheckpoint(org, snapshot.checkpoint.id);
          throw thrown;
        }
        return snapshot;
      });
      const templates = name === undefined ? [] : [name];
      return reply.code(201).send(snapshotShape(org, { id: checkpoint.id, templates }));
    },
  );

  app.get('/snapshots', { schema: { hide: true, querystring: snapshotsQuery } }, async (request, reply) => {
    const { sandboxID, name, limit, nextToken } = request.query;
    const { org } = request.identity;
    const sandboxId = sandboxID === undefined ? undefined : parseSandboxId(sandboxID);
    if (sandboxID !== undefined && sandboxId === undefined) return reply.send([]);
    const last = placeOf(nextToken);
    const found = await request.bound.run(() =>
      engine.keptCheckpoints(org, {
        sandboxId,
        template: name === undefined ? undefined : templateNamed(name, org),
        after: last === undefined ? undefined : { createdAt: last.at, id: last.id },
        limit: limit + 1,
      }),
    );
    const { items, nextCursor } = pageOf(found, limit, ({ createdAt, id }) => tokenOf({ at: createdAt, id }));
    if (nextCursor !== null) reply.header('x-next-token', nextCursor);
    return reply.send(items.map((kept) => snapshotShape(org, kept)));
  });

  app.delete(
    '/templates/:id',
    { config, schema: { hide: true, params: templateParams } },
    async (request, reply) => {
      const { org } = request.identity;
      const named = namedBy(request.params.id, org);
      await request.bound.run(async () => {
        if (named.is === 'checkpoint') {
          if (!(await engine.letGoOfCheckpoint(org, named.id))) throw notFound(`The snapshot ${named.id}`);
          return;
        }
        const { checkpointId, builtIn } = await engine.template(org, named.name);
        if (builtIn)
          throw new TorporError('forbidden', `The template "${named.name}" is built in, and stays.`);
        if (checkpointId !== null && (await engine.letGoOfCheckpoint(org, checkpointId))) return;
        await engine.deleteTemplate(org, named.name);
      });
      return reply.code(204).send();
    },
  );
}

/** Those with a name are known by it: it goes on to lead to the newest. */
function snapshotShape(org: string, { id, templates }: { id: string; templates: readonly string[] }) {
  const names = templates.map((name) => `${org}/${name}`);
  return { snapshotID: names[0] === undefined ? id : `${names[0]}:default`, names };
}

function templateNamed(text: string, org: string): string {
  const named = namedBy(text, org);
  return named.is === 'template' ? named.name : named.id;
}
