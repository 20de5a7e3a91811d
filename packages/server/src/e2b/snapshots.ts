/**
 * E2B's snapshots. With E2B a snapshot is a template. Here it is a kept checkpoint, and one with a name is a template
 * too. One route deletes both.
 */
import { BUILT_IN } from '@torpor/engine';
import { pageOf, parseSandboxId, TorporError } from '@torpor/protocol';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import { runVerb } from '../http/run-verb.ts';
import type { RouteContext } from '../route-context.ts';
import { waitForTransition } from '../sandbox/wait-for-transition.ts';
import { notFound } from './failures.ts';
import { formatToken, parseToken, snapshotsQuery } from './list-query.ts';
import { idParams, templateParams } from './route-params.ts';
import { DEFAULT_TAG, parseSnapshotName, parseTemplateReference, splitTag } from './template-reference.ts';

export function e2bSnapshotRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;
  const config = { deadline: 'lifecycle' } as const;

  app.post(
    '/sandboxes/:id/snapshots',
    {
      config,
      schema: {
        hide: true,
        params: idParams,
        body: z.object({ name: z.string().min(1).max(200).nullish(), memory: z.boolean().nullish() }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { org } = request.identity;
      if (request.body.memory === false)
        throw new TorporError('capability_unsupported', 'A snapshot without memory is not supported yet.', {
          hint: 'A pause can leave the memory out.',
        });
      const name = request.body.name ? parseSnapshotName(request.body.name, org) : undefined;
      if (name !== undefined && BUILT_IN.includes(name)) throw nameOfBuiltIn(name);
      const { checkpoint } = await runVerb(ctx, request, id, async (caller) => {
        const snapshot = await waitForTransition(ctx.clock, request.deadline.signal, () =>
          engine.snapshot(caller, id),
        );
        if (name === undefined) return snapshot;
        try {
          // A name that exists already moves to the newest snapshot.
          await engine.nameTemplate(org, { name, from: snapshot.checkpoint.id }, 'replace');
        } catch (thrown) {
          await engine.releaseCheckpoint(org, snapshot.checkpoint.id);
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
    const last = parseToken(nextToken);
    const found = await request.deadline.run(() =>
      engine.keptCheckpoints(org, {
        sandboxId,
        template: name === undefined ? undefined : templateNameOf(name, org),
        // The steps of builds are checkpoints too.
        forGood: true,
        after: last === undefined ? undefined : { createdAt: last.at, id: last.id },
        limit: limit + 1,
      }),
    );
    const { items, nextCursor } = pageOf(found, limit, ({ createdAt, id }) =>
      formatToken({ at: createdAt, id }),
    );
    if (nextCursor !== null) reply.header('x-next-token', nextCursor);
    return reply.send(items.map((kept) => snapshotShape(org, kept)));
  });

  app.delete(
    '/templates/:id',
    { config, schema: { hide: true, params: templateParams } },
    async (request, reply) => {
      const { org } = request.identity;
      const named = parseTemplateReference(request.params.id, org);
      await request.deadline.run(async () => {
        if (named.is === 'checkpoint') {
          if (!(await engine.releaseCheckpoint(org, named.id))) throw notFound(`The snapshot ${named.id}`);
          return;
        }
        if (named.is === 'published') throw notFound(`The template "${named.name}"`);
        await deleteTemplates(ctx, org, named.name);
      });
      return reply.code(204).send();
    },
  );
}

/** Without a tag, all versions of the template. Their checkpoints go too, unless they are steps of builds. */
async function deleteTemplates(
  { engine, templateBuilds }: RouteContext,
  org: string,
  full: string,
): Promise<void> {
  const { name, tag } = splitTag(full);
  const isWanted = (one: string) => (tag === DEFAULT_TAG ? splitTag(one).name === name : one === full);
  const found = (await engine.templates(org)).filter((one) => isWanted(one.name));
  const hadBuilds = tag === DEFAULT_TAG && (await templateBuilds.list(org, name, 1)).length > 0;
  if (found.length === 0 && !hadBuilds) throw notFound(`The template "${full}"`);
  if (found.some(({ builtIn }) => builtIn))
    throw new TorporError('forbidden', `The template "${full}" is built in and cannot be deleted.`);
  if (hadBuilds) await templateBuilds.forget(org, name);
  for (const { name: one, checkpointId } of found) {
    await engine.deleteTemplate(org, one);
    const kept = checkpointId === null ? undefined : await engine.keptCheckpoint(org, checkpointId);
    if (kept === undefined || kept.templates.length > 0 || kept.expiresAt !== null) continue;
    await engine.releaseCheckpoint(org, kept.id);
  }
}

/** A named snapshot is identified by its name, which always leads to the newest snapshot of that name. */
function snapshotShape(org: string, { id, templates }: { id: string; templates: readonly string[] }) {
  const named = templates.map(splitTag);
  const [first] = named;
  return {
    snapshotID: first === undefined ? id : `${org}/${first.name}:${first.tag}`,
    names: named.map(({ name }) => `${org}/${name}`),
  };
}

function templateNameOf(text: string, org: string): string {
  const named = parseTemplateReference(text, org);
  return named.is === 'checkpoint' ? named.id : named.name;
}

/** E2B's clients replace names without asking, and every sandbox without a template would start from the snapshot. */
function nameOfBuiltIn(name: string): TorporError {
  return new TorporError('conflict', `The name "${name}" belongs to a built-in template.`, {
    hint: 'Choose another name.',
  });
}
