/** API keys as callers see them. The key itself is shown once, when it is created. */
import { z } from 'zod';

/** Users of an organisation, as their own systems name them. */
export const subjectSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._@:|-]{0,127}$/, 'letters, digits and . _ @ : | -, at most 128');

/** `key_` and the first twenty digits of the key's hash. */
export const keyIdSchema = z.string().regex(/^key_[a-z0-9]{20}$/);

export const keyViewSchema = z
  .object({
    id: keyIdSchema,
    name: z.string(),
    org: z.string(),
    subject: z.string().nullable().meta({
      description:
        'The user of the key. Null: a service key, which may manage keys and name any user in the header Torpor-User.',
    }),
    operator: z.boolean().meta({
      description: 'Whether the key may manage organisations, and the keys, quotas and usage of each.',
    }),
    readOnly: z.boolean().meta({
      description: 'Whether requests with the key that change or wake something are refused.',
    }),
    createdAt: z.number().int(),
    expiresAt: z.number().int().nullable(),
    revokedAt: z.number().int().nullable(),
  })
  .meta({ id: 'Key' });
export type KeyView = z.infer<typeof keyViewSchema>;

export const createKeyRequestSchema = z
  .strictObject({
    name: z.string().min(1).max(128),
    subject: subjectSchema.optional(),
    /** Only a service key of the default organisation can have the operator right, and only an operator key can grant it. */
    operator: z.boolean().optional(),
    readOnly: z.boolean().optional(),
    expiresInSeconds: z
      .number()
      .int()
      .min(1)
      .max(10 * 365 * 24 * 3600)
      .optional(),
  })
  .refine(({ operator, subject }) => operator !== true || subject === undefined, {
    message: 'the key of a user cannot be an operator key',
    path: ['operator'],
  })
  .meta({ id: 'CreateKey' });
export type CreateKeyRequest = z.infer<typeof createKeyRequestSchema>;

export const createdKeySchema = keyViewSchema
  .extend({ key: z.string().meta({ description: 'Shown only here: the server does not store the key.' }) })
  .meta({ id: 'CreatedKey' });
export type CreatedKey = z.infer<typeof createdKeySchema>;
