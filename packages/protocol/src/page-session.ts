/** Sign-in at the page (the dashboard in the browser), and who a request acts as. */
import { z } from 'zod';
import { keyIdSchema } from './keys.ts';

/** A token with this prefix is valid only together with the cookie of its session. */
export const PAGE_TOKEN_PREFIX = 'page_';

export const signInRequestSchema = z
  .union([
    z.strictObject({
      key: z.string().min(1).max(256).meta({ description: 'An API key.' }),
      readOnly: z
        .boolean()
        .optional()
        .meta({ description: 'The session sees everything that the key sees, and changes nothing.' }),
    }),
    z.strictObject({
      link: z.string().min(1).max(256).meta({ description: 'The code of a one-time link.' }),
    }),
  ])
  .meta({ id: 'SignIn' });
export type SignInRequest = z.infer<typeof signInRequestSchema>;

export const signedInSchema = z
  .object({
    token: z.string().meta({
      description:
        'Sent like an API key. It is valid only together with the cookie that the same answer sets, and only from ' +
        'pages of this server.',
    }),
    expiresAt: z.number().int(),
  })
  .meta({ id: 'SignedIn' });
export type SignedIn = z.infer<typeof signedInSchema>;

export const pageLinkRequestSchema = z
  .strictObject({
    readOnly: z
      .boolean()
      .optional()
      .meta({ description: 'The browser sees everything that the key sees, and changes nothing.' }),
  })
  .meta({ id: 'CreatePageLink' });
export type PageLinkRequest = z.infer<typeof pageLinkRequestSchema>;

export const pageLinkSchema = z
  .object({
    url: z.string().meta({ description: 'Signs one browser in at the page, once.' }),
    expiresAt: z.number().int(),
  })
  .meta({ id: 'PageLink' });
export type PageLink = z.infer<typeof pageLinkSchema>;

export const identityViewSchema = z
  .object({
    org: z.string(),
    subject: z.string().meta({ description: 'The user that the request acts for.' }),
    keyId: keyIdSchema,
    service: z.boolean().meta({ description: 'Whether the key is a service key.' }),
    operator: z.boolean().meta({ description: 'Whether the key is an operator key.' }),
    readOnly: z
      .boolean()
      .meta({ description: 'Whether requests that change or wake something are refused.' }),
  })
  .meta({ id: 'Identity' });
export type IdentityView = z.infer<typeof identityViewSchema>;
