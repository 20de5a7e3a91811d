/** What a check of the whole store found: everything that is not simply well, and what was done about it. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { sandboxStateSchema } from './states.ts';

export const findingSchema = z.object({
  sandboxId: idSchema('sbx').nullable().meta({ description: 'Null for the checkpoint of a template.' }),
  state: sandboxStateSchema.nullable(),
  checkpointId: idSchema('ckpt').nullable(),
  what: z.enum(['unknown', 'damaged', 'missing', 'lost', 'recovered']).meta({
    description:
      'unknown: the runtime or the checkpoint store could not be asked. damaged: a part of the checkpoint is. ' +
      'missing: the files of the checkpoint are not there. lost: nothing usable is left. ' +
      'recovered: its files came back, its processes did not.',
  }),
  detail: z.string(),
});
export type Finding = z.infer<typeof findingSchema>;

export const fsckReportSchema = z
  .object({
    /** What the round of repairs did, over everything the server looks after. */
    round: z.object({
      takenUp: z.number().int().meta({ description: 'Operations that nobody drove any more.' }),
      repaired: z.number().int(),
      unknown: z.number().int(),
      failed: z.number().int().meta({ description: 'What could not be looked at; the log says why.' }),
    }),
    did: z
      .array(z.object({ sandboxId: idSchema('sbx'), what: z.string() }))
      .meta({ description: "What was done about the caller's sandboxes, and about what was nobody's." }),
    sandboxes: z
      .number()
      .int()
      .meta({ description: "How many of the caller's organisation were looked at." }),
    checkpoints: z.number().int().meta({
      description: 'How many checkpoints of the organisation were looked at, in presence and sizes.',
    }),
    findings: z.array(findingSchema),
    durationMs: z.number().int(),
  })
  .meta({ id: 'FsckReport' });
export type FsckReport = z.infer<typeof fsckReportSchema>;
