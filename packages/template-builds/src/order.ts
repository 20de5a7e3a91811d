/** What is built. Whoever makes an order has checked it: names, paths and hashes have their forms. */
import { z } from 'zod';

const force = z.boolean();
const stepSchema = z.discriminatedUnion('is', [
  z.object({ is: z.literal('run'), force, command: z.string(), user: z.string().optional() }),
  z.object({
    is: z.literal('copy'),
    force,
    /** A path or a pattern in the uploaded archive. */
    source: z.string(),
    target: z.string(),
    owner: z.string().optional(),
    /** Octal digits. */
    mode: z.string().optional(),
    /** The name of the uploaded archive. */
    filesHash: z.string(),
  }),
  z.object({ is: z.literal('env'), force, pairs: z.array(z.tuple([z.string(), z.string()])) }),
  z.object({ is: z.literal('workdir'), force, path: z.string() }),
  z.object({ is: z.literal('user'), force, name: z.string() }),
]);
export type BuildStep = z.infer<typeof stepSchema>;

const orderSchema = z.object({
  base: z.discriminatedUnion('is', [
    z.object({ is: z.literal('template'), name: z.string() }),
    z.object({ is: z.literal('image'), reference: z.string() }),
  ]),
  steps: z.array(stepSchema),
  /** Runs everything again. */
  force,
  /** Runs in the finished template, and in its sandboxes. */
  startCommand: z.string().optional(),
  /** The template is ready when this command ends with exit code 0. */
  readyCommand: z.string().optional(),
});

export interface BuildOrder extends z.infer<typeof orderSchema> {
  /** For the registry of an image. They are in memory only. */
  readonly credentials?: RegistryCredentials | undefined;
}

/** As for `docker login`. */
export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
}

/** For the row of the build. Null for an order with credentials: only the server that has them can run it. */
export function storedOrder({ credentials, ...order }: BuildOrder): string | null {
  return credentials === undefined ? JSON.stringify(order) : null;
}

export function parseOrder(stored: string): BuildOrder {
  return orderSchema.parse(JSON.parse(stored));
}
