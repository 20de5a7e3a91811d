/** The ports of a sandbox: those it declares and those it listens on. */
import { z } from 'zod';

export const portViewSchema = z
  .object({
    port: z.number().int(),
    url: z.string().nullable().meta({ description: 'Where it can be reached now.' }),
    service: z.string().nullable().meta({ description: 'The service that declares it.' }),
    listening: z.boolean().meta({ description: 'Whether something in the sandbox listens there now.' }),
    address: z.string().nullable(),
    pid: z.number().int().nullable(),
    process: z.string().nullable(),
  })
  .meta({ id: 'Port' });
export type PortView = z.infer<typeof portViewSchema>;
