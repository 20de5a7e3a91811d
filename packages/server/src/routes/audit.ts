/** `GET /v1/audit`: who changed what, from the ledger. */
import { type AuditEntry, auditEntrySchema, pageOf, pageSchema, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { errors, json, numberedPageQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { requireOrgExists } from '../orgs/manage.ts';
import type { RouteContext } from '../route-context.ts';

export function auditRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.get(
    '/v1/audit',
    {
      config: { orgId: 'operator' },
      schema: {
        operationId: 'listAudit',
        summary: 'Who changed what, oldest first',
        description:
          'For service keys. The events of the organisation, each with the key and the user that asked for it. ' +
          'Entries are never deleted, so they outlive their sandbox. Cursors are `position`. An operator key may name any ' +
          'organisation by `orgId`.',
        tags: ['events'],
        querystring: numberedPageQuery,
        response: {
          200: json('One page.', pageSchema(auditEntrySchema)),
          ...errors('forbidden', 'not_found'),
        },
      },
    },
    async (request) => {
      const org = auditedBy(request);
      const { limit, cursor = 0 } = request.query;
      return request.deadline.run(async () => {
        await requireOrgExists(ctx, org);
        const found: AuditEntry[] = await ctx.engine.auditEntries(org, cursor, limit + 1);
        return pageOf(found, limit, ({ position }) => String(position));
      });
    },
  );
}

function auditedBy({ identity, org }: FastifyRequest): string {
  if (identity.service) return org;
  throw new TorporError('forbidden', 'The key of a user cannot read the audit.');
}
