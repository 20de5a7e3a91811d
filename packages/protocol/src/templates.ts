/** Templates: named checkpoints, with the services and environment of the sandboxes created from them. */
import { z } from 'zod';
import { userNameSchema } from './exec.ts';
import { type CheckpointId, idSchema } from './ids.ts';
import {
  envSchema,
  nameSchema,
  portSchema,
  resourcesSchema,
  serviceSchema,
  servicesSchema,
  templateNameSchema,
} from './requests.ts';
import { errorBodySchema } from './views.ts';

const definitionFields = {
  description: z.string().max(1_024).optional(),
  /** Every sandbox of the template has these services, unless it declares its own of the same name. */
  services: servicesSchema.optional(),
  env: envSchema.optional(),
  user: userNameSchema
    .optional()
    .meta({ description: 'The user of commands that name none. Absent: that of the source.' }),
  workdir: z
    .string()
    .startsWith('/')
    .max(4_096)
    .optional()
    .meta({ description: 'The directory of commands that name none. Absent: that of the source.' }),
  resources: resourcesSchema.optional().meta({
    description:
      'The limits of sandboxes whose request sets none. Each limit of a request takes precedence. Absent: those of the source.',
  }),
};

/** The definition of a template whose root filesystem is uploaded as an archive. */
export const templateDefinitionSchema = z.strictObject(definitionFields).meta({ id: 'TemplateDefinition' });
export type TemplateDefinition = z.infer<typeof templateDefinitionSchema>;

/** A name for a checkpoint. Services and env default to those of the sandbox that it was sealed from. */
export interface CreateTemplateRequest extends TemplateDefinition {
  readonly name: string;
  readonly from: CheckpointId;
  /** Whether the template takes the place of one that has this name. */
  readonly replace?: boolean | undefined;
}

const imageFields = {
  image: z.string().min(1).max(1_024).meta({
    description: '`registry/name:tag` or `registry/name@sha256:…`; without a registry, of Docker Hub.',
  }),
  registryCredentials: z
    .strictObject({ username: z.string().min(1).max(1_024), password: z.string().min(1).max(16_384) })
    .optional()
    .meta({ description: 'For the registry of the image. Used for this request and not stored.' }),
  entrypoint: z
    .boolean()
    .optional()
    .meta({
      description:
        'Runs ENTRYPOINT and CMD of the image as the service `start`. Its port is the one that the image exposes, when ' +
        'the image exposes exactly one.',
    }),
  runtime: nameSchema.optional(),
};

/** An image that the server fetches from a registry. */
export type ImageTemplateRequest = z.infer<typeof imageTemplateRequestSchema>;
const imageTemplateRequestSchema = z.strictObject({
  name: templateNameSchema,
  ...imageFields,
  ...definitionFields,
});

/** Either the name for a checkpoint, or an image. One object instead of a union, so that a mistake is reported by its field. */
export const createTemplateRequestSchema = z
  .strictObject({
    name: templateNameSchema,
    from: idSchema('ckpt').optional().meta({ description: 'The checkpoint that gets the name.' }),
    replace: z
      .boolean()
      .optional()
      .meta({ description: 'With `from`: the template takes the place of one that has this name.' }),
    ...imageFields,
    image: imageFields.image.optional(),
    ...definitionFields,
  })
  .refine(({ from, image }) => (from === undefined) !== (image === undefined), {
    message: 'give "from" or "image", and not both',
    path: ['from'],
  })
  .refine(
    ({ from, registryCredentials, entrypoint, runtime }) =>
      from === undefined || [registryCredentials, entrypoint, runtime].every((field) => field === undefined),
    { message: '"registryCredentials", "entrypoint" and "runtime" are for images', path: ['from'] },
  )
  .refine(({ replace, from }) => replace === undefined || from !== undefined, {
    message: '"replace" needs "from"',
    path: ['replace'],
  })
  .meta({ id: 'CreateTemplate' });

/** The image that a template was made from. */
export const templateImageSchema = z
  .object({
    reference: z.string().nullable().meta({ description: 'As the caller named it; null for an archive.' }),
    digest: z.string().meta({
      description: 'Of the manifest for the platform; of the configuration for an archive of `docker save`.',
    }),
    platform: z.string(),
    user: z.string().nullable(),
    workdir: z.string().nullable(),
    env: envSchema.default({}),
    entrypoint: z.array(z.string()),
    cmd: z.array(z.string()),
    ports: z.array(portSchema),
  })
  .meta({ id: 'TemplateImage' });
export type TemplateImage = z.infer<typeof templateImageSchema>;

/** `failed` remains only when the client did not wait for the end; a client that waited got the error instead. */
export const templateStateSchema = z.enum(['preparing', 'ready', 'failed']);
export type TemplateState = z.infer<typeof templateStateSchema>;

/** `own`: everything is in the template. `host`: the system directories are those of the server's machine, read-only. */
export const templateRootSchema = z
  .object({
    kind: z.enum(['own', 'host']),
    digest: z
      .string()
      .nullable()
      .meta({ description: 'SHA-256 of the content that the root was made from.' }),
  })
  .meta({ id: 'TemplateRoot' });
export type TemplateRoot = z.infer<typeof templateRootSchema>;

export const templateViewSchema = z
  .object({
    name: z.string(),
    runtime: z.string(),
    /** A built-in template exists in every organisation. A template of the organisation with the same name hides it. */
    builtIn: z.boolean(),
    state: templateStateSchema,
    /** The progress of the preparation; for a built-in template that is ready, of its next version. */
    phase: z.string().nullable(),
    checkpointId: idSchema('ckpt').nullable(),
    root: templateRootSchema
      .nullable()
      .default(null)
      .meta({ description: 'Null for the name of a checkpoint of a sandbox, and where it is not known.' }),
    image: templateImageSchema
      .nullable()
      .default(null)
      .meta({ description: 'Null unless the template was made from a container image.' }),
    description: z.string().nullable(),
    services: z.array(serviceSchema),
    resources: resourcesSchema
      .default({})
      .meta({ description: 'The limits of sandboxes whose request sets none.' }),
    error: errorBodySchema.nullable(),
    createdAt: z.number().int(),
  })
  .meta({ id: 'Template' });
export type TemplateView = z.infer<typeof templateViewSchema>;

/** One line of what happened while a template was prepared. */
export const templateLogLineSchema = z
  .object({ at: z.number().int(), text: z.string() })
  .meta({ id: 'TemplateLogLine' });
export type TemplateLogLine = z.infer<typeof templateLogLineSchema>;
