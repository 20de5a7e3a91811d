/** Organisations, their quotas, and what they have used. */
import { z } from 'zod';

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
  runningSandboxes: 'Sandboxes that run, counting those that are being created, paused or resumed.',
  sandboxes: 'Sandboxes that run or sleep.',
  memoryMb: 'Memory limits of the running sandboxes, in MB. Runtimes that limit no memory count as 0.',
  diskMb: 'Bytes of the sealed checkpoints, in MB. At the limit nothing new is begun; a pause never fails.',
  runningBuilds: 'Builds that are worked on at once. Others wait in line.',
  queuedBuilds: 'Builds that wait in line.',
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
  description: 'Null is no limit.',
});
export type Quotas = z.infer<typeof quotasSchema>;

/** What is not named stays as it is. */
const quotaChangeSchema = z.strictObject(eachQuota(limitSchema.optional())).meta({ id: 'QuotaChange' });
export type QuotaChange = z.infer<typeof quotaChangeSchema>;

export const orgViewSchema = z
  .object({
    id: z.string(),
    createdAt: z.number().int(),
    quotas: quotasSchema,
  })
  .meta({ id: 'Organisation' });
export type OrgView = z.infer<typeof orgViewSchema>;

export const orgDetailsSchema = orgViewSchema
  .extend({
    used: z.strictObject(eachQuota(z.number())).meta({ description: 'What counts against each quota now.' }),
  })
  .meta({ id: 'OrganisationDetails' });
export type OrgDetails = z.infer<typeof orgDetailsSchema>;

export const createOrgRequestSchema = z
  .strictObject({
    name: orgIdSchema.meta({ description: 'Becomes the id, and can never be taken again.' }),
    quotas: quotaChangeSchema.optional(),
  })
  .meta({ id: 'CreateOrganisation' });
export type CreateOrgRequest = z.infer<typeof createOrgRequestSchema>;

export const changeOrgRequestSchema = z
  .strictObject({ quotas: quotaChangeSchema })
  .meta({ id: 'ChangeOrganisation' });
export type ChangeOrgRequest = z.infer<typeof changeOrgRequestSchema>;
