/** The running sandboxes of all organisations, for an operator who takes a server down. */
import { z } from 'zod';
import { idSchema } from './ids.ts';

export const awakeSandboxSchema = z
  .object({ id: idSchema('sbx'), org: z.string() })
  .meta({ id: 'AwakeSandbox' });
export type AwakeSandbox = z.infer<typeof awakeSandboxSchema>;

export const putToSleepReplySchema = z.object({ checkpointId: idSchema('ckpt') });
export type PutToSleepReply = z.infer<typeof putToSleepReplySchema>;
