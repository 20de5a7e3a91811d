/** Templates: named checkpoints, with the services and environment of the sandboxes created from them. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { envSchema, nameSchema, serviceSchema, servicesSchema } from './requests.ts';
import { errorBodySchema } from './views.ts';

const definitionFields = {
  description: z.string().max(1_024).optional(),
  /** Every sandbox of the template has these services, unless it declares its own of the same name. */
  services: servicesSchema.optional(),
  env: envSchema.optional(),
};

/** The definition of a template whose root filesystem is uploaded as an archive. */
export const templateDefinitionSchema = z.strictObject(definitionFields).meta({ id: 'TemplateDefinition' });
export type TemplateDefinition = z.infer<typeof templateDefinitionSchema>;

/** A name for a checkpoint. Services and env default to those of the sandbox that it was sealed from. */
export const createTemplateRequestSchema = z
  .strictObject({ name: nameSchema, from: idSchema('ckpt'), ...definitionFields })
  .meta({ id: 'CreateTemplate' });
export type CreateTemplateRequest = z.infer<typeof createTemplateRequestSchema>;

/** `failed` remains only when the client did not wait for the end; a client that waited got the error instead. */
export const templateStateSchema = z.enum(['preparing', 'ready', 'failed']);
export type TemplateState = z.infer<typeof templateStateSchema>;

export const templateViewSchema = z
  .object({
    name: z.string(),
    runtime: z.string(),
    /** A built-in template exists in every organisation, and cannot be changed. */
    builtIn: z.boolean(),
    state: templateStateSchema,
    /** The progress of the preparation. */
    phase: z.string().nullable(),
    checkpointId: idSchema('ckpt').nullable(),
    description: z.string().nullable(),
    services: z.array(serviceSchema),
    error: errorBodySchema.nullable(),
    createdAt: z.number().int(),
  })
  .meta({ id: 'Template' });
export type TemplateView = z.infer<typeof templateViewSchema>;
