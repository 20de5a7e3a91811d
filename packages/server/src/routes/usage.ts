/** `GET /v1/usage`: the usage of an organisation in a period. */
import { usageOf } from '@torpor/engine';
import { TorporError, usageViewSchema } from '@torpor/protocol';
import { z } from 'zod';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { requireOrgExists } from '../orgs/manage.ts';
import type { RouteContext } from '../route-context.ts';

/** Milliseconds since 1970, or an ISO 8601 date: `2026-01-31` or `2026-01-31T12:00:00Z`. */
const momentSchema = z
  .string()
  .regex(/^(?:\d{1,15}|\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?(?:Z|[+-]\d{2}:\d{2}))?)$/)
  .transform((text, context) => {
    const moment = /^\d+$/.test(text) ? Number(text) : Date.parse(text);
    if (Number.isSafeInteger(moment) && moment >= 0) return moment;
    context.addIssue({ code: 'custom', message: 'is not a time since 1970' });
    return z.NEVER;
  })
  .meta({ description: 'Milliseconds since 1970, or ISO 8601.' });

export function usageRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { db, clock } = ctx;
  app.get(
    '/v1/usage',
    {
      config: { orgId: 'operator' },
      schema: {
        operationId: 'getUsage',
        summary: 'The usage of an organisation',
        description:
          'From `from` to `to`. The default is the current month (UTC) until now. An operator key may ' +
          'name any organisation by `orgId`.',
        tags: ['organisations'],
        querystring: z.strictObject({ from: momentSchema.optional(), to: momentSchema.optional() }),
        response: { 200: json('The usage.', usageViewSchema), ...errors('forbidden', 'not_found') },
      },
    },
    async ({ org, query, deadline }) => {
      const now = clock.now();
      const to = Math.min(query.to ?? now, now);
      const from = query.from ?? beginningOfMonth(to);
      if (from >= to) throw new TorporError('invalid_request', '"from" must be before "to" and before now.');
      return deadline.run(async () => {
        await requireOrgExists(ctx, org);
        return usageOf(db, org, from, to);
      });
    },
  );
}

function beginningOfMonth(now: number): number {
  const date = new Date(now);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
}
