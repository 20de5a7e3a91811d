/** The requests of the API. Unknown fields are refused, so that a misspelt option is never ignored. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { secretUseSchema } from './secrets.ts';
import { MAX_SERVICES } from './service-tags.ts';
import { checkpointModeSchema, fallbackSchema } from './states.ts';

/** Thirty days: longer than any useful lifetime, and small enough to stay an exact integer. */
const MAX_SECONDS = 30 * 24 * 3600;

export const nameSchema = z
  .string()
  .regex(/^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$/, 'letters, digits, dot, dash, underscore');
/** A template may have versions: `app:v2` is a template of its own beside `app`. */
export const templateNameSchema = z
  .string()
  .regex(
    /^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}(?::[a-z0-9][a-z0-9._-]{0,62})?$/,
    'letters, digits, dot, dash, underscore; optionally a colon and a tag',
  );
/** `acme/app` is the template `app` of the organisation `acme`, which has published it. */
const templateSourceSchema = z
  .string()
  .regex(
    /^(?:[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?\/)?[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}(?::[a-z0-9][a-z0-9._-]{0,62})?$/,
    'the name of a template, for one of another organisation with the organisation and a slash before it',
  );
export const envSchema = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
  .refine((env) => Object.keys(env).length <= 256, 'at most 256 variables');
/** Without backslashes: V8's JSON.parse may take an escaped key for one that has them (docs/architecture.md). */
const metadataKeySchema = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[^\\]*$/, 'must not have a backslash');
const metadataSchema = z
  .record(metadataKeySchema, z.string().max(1_024))
  .refine((metadata) => Object.keys(metadata).length <= 64, 'at most 64 keys');
export const portSchema = z.number().int().min(1).max(65_535);
const secondsSchema = z.number().int().min(1).max(MAX_SECONDS);

/** Ten years. To keep a sandbox for longer, use null. */
const MAX_RETENTION_SECONDS = 3_650 * 24 * 3600;

/** Null: for ever. */
export const retentionSchema = z
  .union([z.number().int().min(1).max(MAX_RETENTION_SECONDS), z.literal('default')])
  .nullable()
  .meta({
    id: 'Retention',
    description:
      'Seconds that a paused sandbox is kept without use before it is deleted; null keeps it for ever, "default" ' +
      'leaves it to the organisation (of a sandbox) or to the server (of an organisation). A deletion is announced ' +
      'by a `sandbox.expiring` event, 24 hours ahead unless the server is set otherwise.',
  });
export type Retention = z.infer<typeof retentionSchema>;

export const serviceSchema = z
  .strictObject({
    name: nameSchema,
    command: z.string().min(1).max(32_768),
    cwd: z.string().min(1).max(4_096).optional(),
    port: portSchema.optional(),
    env: envSchema.optional(),
    /** The service is ready when its port accepts connections, or when this path answers with a status below 500, in time. */
    ready: z
      .strictObject({ path: z.string().startsWith('/').optional(), timeoutSeconds: secondsSchema.optional() })
      .optional(),
  })
  .meta({ id: 'Service' });
export type Service = z.infer<typeof serviceSchema>;

export const servicesSchema = z
  .array(serviceSchema)
  .max(MAX_SERVICES)
  .refine((services) => new Set(services.map((s) => s.name)).size === services.length, 'names must differ');

export const networkSchema = z.strictObject({
  mode: z.enum(['internet', 'none']).optional(),
  allow: z.array(z.string().min(1).max(253)).max(256).optional(),
  deny: z.array(z.string().min(1).max(253)).max(256).optional(),
  secrets: z
    .array(secretUseSchema)
    .max(64)
    .optional()
    .meta({
      description:
        'Secrets of the organisation that the egress puts into requests of the sandbox, by name, or with rules that ' +
        'narrow the host, methods and path of the secret.',
    }),
});
export type Network = z.infer<typeof networkSchema>;

/** The upper bounds are more than a machine has, and still valid for the kernel: 4 TiB, 1,024 CPUs, 1 PiB. */
export const resourcesSchema = z.strictObject({
  memoryMb: z
    .number()
    .int()
    .min(32)
    .max(4 * 1024 ** 2)
    .optional(),
  cpus: z.number().min(0.01).max(1_024).optional(),
  processes: z.number().int().min(1).max(1_000_000).optional(),
  diskMb: z
    .number()
    .int()
    .min(1)
    .max(1024 ** 3)
    .optional(),
});
export type Resources = z.infer<typeof resourcesSchema>;

/** The number of processors that programs of a sandbox see: its limit, rounded up, and at most those of the machine. */
export function visibleProcessors({ cpus }: Resources, ofMachine: number): number {
  return Math.max(1, Math.min(Math.ceil(cpus ?? ofMachine), ofMachine));
}

/** Stands for the port of a preview, as in E2B's `maskRequestHost`. */
// biome-ignore lint/suspicious/noTemplateCurlyInString: the placeholder looks like this.
export const PORT_PLACEHOLDER = '${PORT}';

/** A host with an optional port, which may be the placeholder. */
export const requestHostSchema = z
  .string()
  .max(253)
  .regex(
    /^[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?(?::(?:[1-9][0-9]{0,4}|\$\{PORT\}))?$/,
    'a host, with an optional port',
  )
  .meta({
    description:
      'The `Host` that programs in the sandbox get in requests to their previews, such as ' +
      `\`localhost:${PORT_PLACEHOLDER}\`, with the port of the preview. Absent: the host of the preview.`,
  });

/** `stop` ends an idle sandbox and says so: for runtimes that cannot pause. A session then gets a new sandbox. */
export const onIdleSchema = z.enum(['pause', 'stop', 'kill', 'keep']);
export type OnIdle = z.infer<typeof onIdleSchema>;

/** The options of a new sandbox, created or forked. */
const sandboxFields = {
  name: nameSchema.optional(),
  metadata: metadataSchema.optional(),
  env: envSchema.optional(),
  timeoutSeconds: secondsSchema.optional(),
  onTimeout: z.enum(['pause', 'kill']).optional(),
  /** What an automatic pause keeps; absent: as much as the runtime can. */
  pauseMode: checkpointModeSchema.optional(),
  deletePausedAfterSeconds: retentionSchema.optional(),
  idleSeconds: secondsSchema.optional(),
  onIdle: onIdleSchema.optional(),
  autoResume: z.boolean().optional(),
  checkpointEverySeconds: z
    .number()
    .int()
    .min(10)
    .max(31_536_000)
    .optional()
    .meta({
      description:
        'Seals a checkpoint of the running sandbox this often, in place, and replicates it where there is a store. It bounds ' +
        'what is lost when the machine dies. Absent: only pauses and snapshots seal one.',
    }),
  fallback: z.array(fallbackSchema).max(3).optional(),
  preview: z.enum(['public', 'private']).optional(),
  requestHost: requestHostSchema.optional(),
  services: servicesSchema.optional(),
  network: networkSchema.optional(),
  resources: resourcesSchema.optional(),
};

export const createRequestSchema = z
  .strictObject({
    template: templateSourceSchema.optional().meta({
      description:
        'A template of the organisation, a built-in one, or `organisation/name` of a published one.',
    }),
    from: idSchema('ckpt').optional(),
    runtime: nameSchema.optional(),
    ...sandboxFields,
  })
  .refine((request) => request.template === undefined || request.from === undefined, {
    message: 'give "template" or "from", not both',
    path: ['from'],
  })
  .meta({ id: 'CreateSandbox' });
export type CreateRequest = z.infer<typeof createRequestSchema>;

/** `sealed`: on the disk of this machine. `replicated`: in the store outside this machine too. */
export const pauseDurabilitySchema = z.enum(['sealed', 'replicated']);
export type PauseDurability = z.infer<typeof pauseDurabilitySchema>;

export const pauseRequestSchema = z
  .strictObject({
    mode: checkpointModeSchema.optional(),
    durability: pauseDurabilitySchema.optional().meta({
      description:
        'How durable the checkpoint must be before the answer. `replicated` waits for the store of the server within the ' +
        'deadline of the request; the pause is done in any case. Absent: as the server is configured.',
    }),
  })
  .meta({ id: 'PauseSandbox' });
export type PauseRequest = z.infer<typeof pauseRequestSchema>;

export const resumeRequestSchema = z
  .strictObject({
    timeoutSeconds: secondsSchema.optional(),
    from: idSchema('ckpt').optional(),
    fallback: z.array(fallbackSchema).max(3).optional(),
    /** `files` starts from the files only, even if the checkpoint has memory. */
    mode: checkpointModeSchema.optional(),
  })
  .meta({ id: 'ResumeSandbox' });
export type ResumeRequest = z.infer<typeof resumeRequestSchema>;

export const forkRequestSchema = z
  .strictObject({ count: z.number().int().min(1).max(100).optional(), ...sandboxFields })
  .meta({ id: 'ForkSandbox' });
export type ForkRequest = z.infer<typeof forkRequestSchema>;

export const snapshotRequestSchema = z
  .strictObject({ name: nameSchema.optional(), expiresInSeconds: secondsSchema.optional() })
  .meta({ id: 'CreateCheckpoint' });
export type SnapshotRequest = z.infer<typeof snapshotRequestSchema>;

export const nameCheckpointRequestSchema = z
  .strictObject({ name: nameSchema })
  .meta({ id: 'NameCheckpoint' });

export const rollbackRequestSchema = z
  .strictObject({ checkpointId: idSchema('ckpt') })
  .meta({ id: 'RollbackSandbox' });
export type RollbackRequest = z.infer<typeof rollbackRequestSchema>;

export const retentionRequestSchema = z
  .strictObject({ deletePausedAfterSeconds: retentionSchema })
  .meta({ id: 'SetRetention' });
export type RetentionRequest = z.infer<typeof retentionRequestSchema>;

export const timeoutRequestSchema = z
  .strictObject({ timeoutSeconds: secondsSchema.nullable() })
  .meta({ id: 'SetTimeout' });
export type TimeoutRequest = z.infer<typeof timeoutRequestSchema>;
