/** The machine that a server runs on: what it has, and what was checked on it. */
import { z } from 'zod';

/** Also a passed check may have a `fix`: something that should be done although everything works. */
export const machineCheckSchema = z
  .object({
    name: z.string(),
    ok: z.boolean(),
    detail: z.string().meta({ description: 'What was found, in one line.' }),
    fix: z
      .string()
      .nullable()
      .meta({ description: 'What to do about it; null when nothing has to be done.' }),
  })
  .meta({ id: 'MachineCheck' });
export type MachineCheck = z.infer<typeof machineCheckSchema>;

export const machineViewSchema = z
  .object({
    at: z.number().int(),
    cpus: z.number().int(),
    load: z
      .number()
      .meta({ description: 'Average number of waiting or running threads in the last minute.' }),
    memoryTotalBytes: z.number().int(),
    memoryAvailableBytes: z.number().int(),
    findings: z
      .array(machineCheckSchema)
      .meta({ description: 'What should be done about the programs of this machine, such as an old runsc.' }),
  })
  .meta({ id: 'Machine' });
export type MachineView = z.infer<typeof machineViewSchema>;

export const doctorReportSchema = z
  .object({ at: z.number().int(), durationMs: z.number().int(), checks: z.array(machineCheckSchema) })
  .meta({ id: 'DoctorReport' });
export type DoctorReport = z.infer<typeof doctorReportSchema>;
