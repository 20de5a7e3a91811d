/** Templates: named first checkpoints, and what a sandbox made from one is given beside its files. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { envSchema, nameSchema, serviceSchema, servicesSchema } from './requests.ts';
import { errorBodySchema } from './views.ts';

const definitionFields = {
  description: z.string().max(1_024).optional(),
  /** Every sandbox made from it has these, unless it declares its own of the same name. */
  services: servicesSchema.optional(),
  env: envSchema.optional(),
};

/** What is said of a template whose root comes as an archive. */
export const templateDefinitionSchema = z.strictObject(definitionFields).meta({ id: 'TemplateDefinition' });
export type TemplateDefinition = z.infer<typeof templateDefinitionSchema>;

/** A name for a checkpoint. Services and env are those of the sandbox that it was sealed from, unless given. */
export const createTemplateRequestSchema = z
  .strictObject({ name: nameSchema, from: idSchema('ckpt'), ...definitionFields })
  .meta({ id: 'CreateTemplate' });
export type CreateTemplateRequest = z.infer<typeof createTemplateRequestSchema>;

/** `failed` is for those who did not wait for the end; whoever waited was told, and nothing is left. */
export const templateStateSchema = z.enum(['preparing', 'ready', 'failed']);
export type TemplateState = z.infer<typeof templateStateSchema>;

export const templateViewSchema = z
  .object({
    name: z.string(),
    runtime: z.string(),
    /** Everybody has it, and nobody can change it. */
    builtIn: z.boolean(),
    state: templateStateSchema,
    /** How far it has come, while it is prepared. */
    phase: z.string().nullable(),
    checkpointId: idSchema('ckpt').nullable(),
    description: z.string().nullable(),
    services: z.array(serviceSchema),
    error: errorBodySchema.nullable(),
    createdAt: z.number().int(),
  })
  .meta({ id: 'Template' });
export type TemplateView = z.infer<typeof templateViewSchema>;
