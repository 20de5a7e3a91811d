/** The audit: who changed what, from the ledger. */
import { z } from 'zod';
import { eventViewSchema, reasonSchema } from './events.ts';
import { keyIdSchema, subjectSchema } from './keys.ts';
import { operationKindSchema } from './states.ts';

/** The key and the user of a request. */
export const actorSchema = z.object({ keyId: keyIdSchema, subject: subjectSchema }).meta({ id: 'Actor' });
export type Actor = z.infer<typeof actorSchema>;

export const auditEntrySchema = eventViewSchema
  .extend({
    by: actorSchema.nullable().meta({
      description:
        'The key that asked for the change. Null: the server itself did it, a preview was visited, or it is older ' +
        'than the audit.',
    }),
    operation: z
      .object({ kind: operationKindSchema, reason: reasonSchema })
      .nullable()
      .meta({ description: 'The operation that the event belongs to.' }),
  })
  .meta({ id: 'AuditEntry' });
export type AuditEntry = z.infer<typeof auditEntrySchema>;
