/** The ports of a sandbox: declared ports, ports on which programs listen, and preview links. */
import { z } from 'zod';
import { portSchema } from './requests.ts';

export const portViewSchema = z
  .object({
    port: z.number().int(),
    url: z
      .string()
      .nullable()
      .meta({ description: 'The preview address; a request to it wakes a sandbox that sleeps.' }),
    service: z.string().nullable().meta({ description: 'The service that declares the port.' }),
    listening: z.boolean().meta({ description: 'Whether a program in the sandbox listens on the port now.' }),
    address: z.string().nullable(),
    pid: z.number().int().nullable(),
    process: z.string().nullable(),
  })
  .meta({ id: 'Port' });
export type PortView = z.infer<typeof portViewSchema>;

/** The header with which a program authenticates at a private preview. */
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
    url: z.string().meta({ description: 'For a browser; for a private preview the link works once.' }),
    expiresAt: z.number().int().nullable().meta({ description: 'Null when the link does not expire.' }),
    token: z.string().meta({ description: 'For programs, in the header named by `header`.' }),
    header: z.string(),
  })
  .meta({ id: 'PreviewLink' });
export type PreviewLink = z.infer<typeof previewLinkSchema>;
