/** The JSON documents of an image: index, manifest, configuration. All of them are untrusted. */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { unusable } from './unusable.ts';

const digestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/, 'is not a SHA-256 digest');

const platformSchema = z.object({
  os: z.string().max(64),
  architecture: z.string().max(64),
  variant: z.string().max(64).optional(),
});

const descriptorSchema = z.object({
  mediaType: z.string().max(255),
  digest: digestSchema,
  size: z.number().int().min(0),
});
export type Descriptor = z.infer<typeof descriptorSchema>;

export const indexSchema = z.object({
  manifests: z.array(descriptorSchema.extend({ platform: platformSchema.optional() })).max(1_000),
});

export const manifestSchema = z.object({
  config: descriptorSchema,
  /** Docker's own limit is 127. */
  layers: z.array(descriptorSchema).max(500),
});

const textList = z.array(z.string().max(32_768)).max(1_000).nullish();

export const configSchema = z.object({
  os: z.string().max(64),
  architecture: z.string().max(64),
  variant: z.string().max(64).optional(),
  config: z
    .object({
      User: z.string().max(255).nullish(),
      WorkingDir: z.string().max(4_096).nullish(),
      Env: textList,
      Entrypoint: textList,
      Cmd: textList,
      ExposedPorts: z.record(z.string().max(64), z.unknown()).nullish(),
    })
    .nullish(),
  rootfs: z.object({ type: z.literal('layers'), diff_ids: z.array(digestSchema).max(500) }),
});
export type ConfigDocument = z.infer<typeof configSchema>;

/** What `docker save` writes as `manifest.json`. */
export const dockerManifestSchema = z
  .array(z.object({ Config: z.string().max(4_096), Layers: z.array(z.string().max(4_096)).max(500) }))
  .max(1_000);

export function parseDocument<T>(bytes: Buffer, schema: z.ZodType<T>, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw unusable(`${what} is not JSON`, cause);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw unusable(
    `${what} has an invalid field ${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`,
    parsed.error,
  );
}

/** Both kinds of documents have the same names in Docker's and in the OCI's format. */
export function isIndex(document: unknown): boolean {
  return typeof document === 'object' && document !== null && 'manifests' in document;
}

export function requireJsonObject(bytes: Buffer, what: string): unknown {
  return parseDocument(bytes, z.looseObject({}), what);
}

export function refuseForeign({ mediaType }: Descriptor): void {
  if (!/nondistributable|foreign/.test(mediaType)) return;
  throw new TorporError('invalid_request', 'The image has a layer that registries may not give out.', {
    hint: 'Such layers are usual for Windows only. Torpor runs images for Linux.',
  });
}
