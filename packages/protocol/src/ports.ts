/** The ports of a sandbox: those it declares and those it listens on, and who may visit them. */
import { z } from 'zod';
import { portSchema } from './requests.ts';

export const portViewSchema = z
  .object({
    port: z.number().int(),
    url: z
      .string()
      .nullable()
      .meta({ description: 'Where it can be visited; one that sleeps wakes for it.' }),
    service: z.string().nullable().meta({ description: 'The service that declares it.' }),
    listening: z.boolean().meta({ description: 'Whether something in the sandbox listens there now.' }),
    address: z.string().nullable(),
    pid: z.number().int().nullable(),
    process: z.string().nullable(),
  })
  .meta({ id: 'Port' });
export type PortView = z.infer<typeof portViewSchema>;

/** In which a program proves that it may visit a private preview. */
export const PREVIEW_TOKEN_HEADER = 'Torpor-Preview-Token';

export const previewLinkRequestSchema = z
  .strictObject({
    port: portSchema,
    expiresInSeconds: z.number().int().min(1).max(86_400).optional(),
  })
  .meta({ id: 'CreatePreviewLink' });
export type PreviewLinkRequest = z.infer<typeof previewLinkRequestSchema>;

export const previewLinkSchema = z
  .object({
    url: z.string().meta({ description: 'For a browser; of a private preview it works once.' }),
    expiresAt: z.number().int().nullable().meta({ description: 'Null when it does not.' }),
    token: z.string().meta({ description: 'For programs, in the header that is named.' }),
    header: z.string(),
  })
  .meta({ id: 'PreviewLink' });
export type PreviewLink = z.infer<typeof previewLinkSchema>;
