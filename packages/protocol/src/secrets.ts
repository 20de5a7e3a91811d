/** Secrets: header values that the egress puts into requests of sandboxes, which never see them. */
import { z } from 'zod';

export const secretNameSchema = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, 'letters, digits and underscore, like an environment variable')
  .meta({ id: 'SecretName' });

/** A name of at least two labels, or `*.` and such a name, with an optional port. */
const HOST =
  /^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)+(:[1-9][0-9]{0,4})?$/;

export const secretHostSchema = z
  .string()
  .max(253)
  .regex(HOST, 'a host name such as api.example.com, or *.example.com, without https://')
  .meta({
    description:
      'Requests to this host get the secret: a name, or `*.` and a name for all names under it, with an optional port ' +
      '(default 443).',
  });

/** A field name of HTTP. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Headers that belong to the connection, to the framing of the body or to the routing of the request. */
const NOT_INJECTED: readonly string[] = [
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

export const secretHeaderSchema = z
  .string()
  .max(128)
  .regex(TOKEN, 'the name of a header')
  .refine((name) => !NOT_INJECTED.includes(name.toLowerCase()), 'this header cannot be set');

/** What may stand in a header; a line break would begin another header. */
export const headerTextSchema = z
  .string()
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'characters of a header, in one line');

const methodsSchema = z
  .array(z.string().regex(/^[A-Z]{1,20}$/, 'an HTTP method in capitals'))
  .min(1)
  .max(20)
  .meta({ description: 'Only requests with one of these methods get the secret. Absent: all methods.' });

const pathSchema = z
  .string()
  .max(1_024)
  .regex(/^\/[\x21-\x7e]*$/, 'a path that begins with /')
  .refine((path) => !/[?#*\\%]|\/\/|\/\.{1,2}(\/|$)/.test(path), 'a plain path without ?, #, *, % and ..')
  .meta({ description: 'Only requests to this path and below it get the secret. Absent: all paths.' });

/** What a secret is put into, without its value. */
const secretFields = {
  host: secretHostSchema,
  header: secretHeaderSchema.meta({ description: 'The header that carries the secret.' }),
  prefix: headerTextSchema.max(128).optional().meta({
    description: 'Stands before the value in the header, such as `Bearer `.',
  }),
  methods: methodsSchema.optional(),
  path: pathSchema.optional(),
};

const MAX_VALUE = 8_192;

export const setSecretRequestSchema = z
  .strictObject({
    ...secretFields,
    value: headerTextSchema
      .min(1)
      .max(MAX_VALUE)
      .refine((value) => value.trim() === value, 'must not begin or end with a space')
      .meta({ description: 'No answer of the API contains it.' }),
  })
  .meta({ id: 'SetSecret' });
export type SetSecretRequest = z.input<typeof setSecretRequestSchema>;

export const secretViewSchema = z
  .object({
    name: secretNameSchema,
    host: z.string(),
    header: z.string(),
    prefix: z.string().nullable(),
    methods: z.array(z.string()).nullable(),
    path: z.string().nullable(),
    createdAt: z.number().int(),
    updatedAt: z.number().int(),
  })
  .meta({ id: 'Secret' });
export type SecretView = z.infer<typeof secretViewSchema>;

/** Which secret a sandbox may use, and for which of the requests that the secret itself is meant for. */
export const secretUseSchema = z
  .union([
    secretNameSchema,
    z.strictObject({
      name: secretNameSchema,
      host: secretHostSchema.optional(),
      methods: methodsSchema.optional(),
      path: pathSchema.optional(),
    }),
  ])
  .meta({ id: 'SecretUse' });
export type SecretUse = z.infer<typeof secretUseSchema>;

export function nameOfUse(use: SecretUse): string {
  return typeof use === 'string' ? use : use.name;
}
