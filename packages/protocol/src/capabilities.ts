/** What a runtime declares it can do. It is asked before anything is written. */
import { z } from 'zod';

export const capabilitiesSchema = z.object({
  /** What survives a pause. With `none`, nothing is ever recorded as paused. */
  pause: z.enum(['memory', 'files', 'none']),
  /** Whether the checkpoint of a pause may be started more than once. One that was made in place always may. */
  replayable: z.boolean(),
  fork: z.boolean(),
  /** Whether a snapshot leaves the same processes running; without it a snapshot is a pause and a resume. */
  snapshotWhileRunning: z.boolean(),
  pty: z.boolean(),
  /** Whether a sandbox is kept away from the host and from the others. */
  isolated: z.boolean(),
  /** Whether a template can be made from a root that somebody brings. */
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
