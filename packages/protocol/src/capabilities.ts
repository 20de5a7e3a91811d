/** The declared capabilities of a runtime. The engine checks them before it writes anything. */
import { z } from 'zod';

export const capabilitiesSchema = z.object({
  /** What survives a pause. With `none`, no sandbox is ever recorded as paused. */
  pause: z.enum(['memory', 'files', 'none']),
  /** Whether the checkpoint of a pause may be started more than once. A checkpoint of a snapshot in place always may. */
  replayable: z.boolean(),
  fork: z.boolean(),
  /** Whether a snapshot leaves the processes running; otherwise a snapshot is a pause and a resume. */
  snapshotWhileRunning: z.boolean(),
  pty: z.boolean(),
  /** Whether sandboxes are isolated from the host and from each other. */
  isolated: z.boolean(),
  /** Whether a template can be made from an uploaded root filesystem. */
  customTemplates: z.boolean(),
});
export type Capabilities = z.infer<typeof capabilitiesSchema>;

export const runtimeViewSchema = z
  .object({
    name: z.string(),
    default: z.boolean(),
    capabilities: capabilitiesSchema,
  })
  .meta({ id: 'Runtime' });
export type RuntimeView = z.infer<typeof runtimeViewSchema>;
