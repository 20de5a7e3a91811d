/** The result of a check of the whole store: everything that is not in order, and the repairs. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { sandboxStateSchema } from './states.ts';

export const findingSchema = z.object({
  sandboxId: idSchema('sbx').nullable().meta({ description: 'Null for the checkpoint of a template.' }),
  state: sandboxStateSchema.nullable(),
  checkpointId: idSchema('ckpt').nullable(),
  what: z.enum(['unknown', 'damaged', 'missing', 'lost', 'recovered', 'unusable']).meta({
    description:
      'unknown: the runtime or the checkpoint store did not answer. damaged: a part of the checkpoint is damaged. ' +
      'missing: the files of the checkpoint are missing. lost: nothing usable is left. ' +
      'recovered: its files came back, its processes did not. ' +
      'unusable: the memory of the checkpoint is not damaged, but cannot be restored on this machine; a start uses the files.',
  }),
  detail: z.string(),
});
export type Finding = z.infer<typeof findingSchema>;

export const fsckReportSchema = z
  .object({
    /** The repairs over all organisations. */
    round: z.object({
      takenUp: z
        .number()
        .int()
        .meta({ description: 'Operations whose server was gone, and which were taken over.' }),
      repaired: z.number().int(),
      unknown: z.number().int(),
      failed: z.number().int().meta({ description: 'Checks that failed; the log says why.' }),
    }),
    did: z
      .array(z.object({ sandboxId: idSchema('sbx'), what: z.string() }))
      .meta({ description: "The repairs of the caller's sandboxes, and of leftovers without an owner." }),
    sandboxes: z
      .number()
      .int()
      .meta({ description: "How many sandboxes of the caller's organisation were checked." }),
    checkpoints: z.number().int().meta({
      description: 'How many checkpoints of the organisation were checked for presence and size.',
    }),
    findings: z.array(findingSchema),
    durationMs: z.number().int(),
  })
  .meta({ id: 'FsckReport' });
export type FsckReport = z.infer<typeof fsckReportSchema>;
