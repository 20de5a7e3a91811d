/** Organisations, their quotas and their usage. */
import { z } from 'zod';
import { retentionSchema } from './requests.ts';

/** The organisation that every server starts with. Only its keys can carry the operator right. */
export const DEFAULT_ORG = 'default';

export const orgIdSchema = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$/,
    'lower-case letters, digits and -, at most 40, with a letter or digit at both ends',
  );

/** Every quota, with what it limits; a quota without a description does not compile. */
export const QUOTAS = {
  runningSandboxes: 'Running sandboxes, including those that are being created, paused or resumed.',
  sandboxes: 'Running and paused sandboxes.',
  memoryMb: 'Memory limits of the running sandboxes, in MB. Runtimes that limit no memory count as 0.',
  diskMb: 'Size of the sealed checkpoints, in MB. At the limit nothing new is started; a pause never fails.',
  runningBuilds: 'Builds that run at once. Further builds are queued.',
  queuedBuilds: 'Queued builds.',
} as const;
export type QuotaName = keyof typeof QUOTAS;
export const QUOTA_NAMES = Object.keys(QUOTAS) as QuotaName[];

const limitSchema = z.number().int().min(0).max(1_000_000_000_000).nullable();
const eachQuota = <T extends z.ZodType>(schema: T) =>
  Object.fromEntries(QUOTA_NAMES.map((name) => [name, schema.meta({ description: QUOTAS[name] })])) as Record<
    QuotaName,
    T
  >;

export const quotasSchema = z.strictObject(eachQuota(limitSchema)).meta({
  id: 'Quotas',
  description: 'Null: no limit.',
});
export type Quotas = z.infer<typeof quotasSchema>;

/** Quotas that are not named stay unchanged. */
const quotaChangeSchema = z.strictObject(eachQuota(limitSchema.optional())).meta({ id: 'QuotaChange' });
export type QuotaChange = z.infer<typeof quotaChangeSchema>;

export const orgViewSchema = z
  .object({
    id: z.string(),
    createdAt: z.number().int(),
    quotas: quotasSchema,
    deletePausedAfterSeconds: retentionSchema,
  })
  .meta({ id: 'Organisation' });
export type OrgView = z.infer<typeof orgViewSchema>;

export const orgDetailsSchema = orgViewSchema
  .extend({
    used: z.strictObject(eachQuota(z.number())).meta({ description: 'The present usage of each quota.' }),
  })
  .meta({ id: 'OrganisationDetails' });
export type OrgDetails = z.infer<typeof orgDetailsSchema>;

export const createOrgRequestSchema = z
  .strictObject({
    name: orgIdSchema.meta({ description: 'Becomes the id, and can never be taken again.' }),
    quotas: quotaChangeSchema.optional(),
    deletePausedAfterSeconds: retentionSchema.optional(),
  })
  .meta({ id: 'CreateOrganisation' });
export type CreateOrgRequest = z.infer<typeof createOrgRequestSchema>;

export const changeOrgRequestSchema = z
  .strictObject({
    quotas: quotaChangeSchema.optional(),
    deletePausedAfterSeconds: retentionSchema.optional(),
  })
  .meta({ id: 'ChangeOrganisation' });
export type ChangeOrgRequest = z.infer<typeof changeOrgRequestSchema>;

/** The usage of an organisation between two moments. */
export const usageViewSchema = z
  .object({
    orgId: z.string(),
    from: z.number().int(),
    to: z.number().int(),
    runningSeconds: z.number().meta({
      description:
        'From a start to the end of the pause or kill that ended the run, of all sandboxes together.',
    }),
    pausedSeconds: z.number().meta({ description: 'From a pause to the end of the resume or the kill.' }),
    memoryMbSeconds: z
      .number()
      .nullable()
      .meta({
        description:
          'The memory limits of the running sandboxes times how long each ran, not what was measured. Null when one of ' +
          'them ran without a limit, so that the figure is not known.',
      }),
    diskBytes: z.number().int().meta({ description: 'Bytes of the sealed checkpoints now.' }),
    diskByteSeconds: z.number().meta({ description: 'Bytes of each checkpoint times how long it was kept.' }),
    egressBytes: z
      .object({ sent: z.number().int(), received: z.number().int() })
      .nullable()
      .meta({
        description:
          'Bytes between sandboxes and the outside, as the sandboxes see it, by whole hours. Null when one of them ' +
          'ran on a runtime that does not count them.',
      }),
  })
  .meta({ id: 'Usage' });
export type UsageView = z.infer<typeof usageViewSchema>;
