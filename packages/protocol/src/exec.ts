/** Running a command in a sandbox: the request, the reply, and the events of a stream. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { processViewSchema } from './processes.ts';
import { envSchema } from './requests.ts';
import { errorBodySchema } from './views.ts';

/** A little below the limit of Linux for one argument (131,072 bytes). */
const MAX_COMMAND_BYTES = 131_000;
const MAX_STDIN_CHARACTERS = 1_000_000;
const MAX_EXEC_SECONDS = 24 * 3600;

export const userNameSchema = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_.-]{0,31}$/, 'a user of the sandbox: letters, digits, dot, dash, underscore');

export const execRequestSchema = z
  .strictObject({
    command: z
      .string()
      .min(1)
      .max(MAX_COMMAND_BYTES)
      .refine((text) => new TextEncoder().encode(text).length <= MAX_COMMAND_BYTES, 'at most 131000 bytes')
      .meta({ description: 'Run by a login shell.' }),
    cwd: z.string().min(1).max(4_096).optional().meta({ description: "Absent: the sandbox's home." }),
    env: envSchema.optional(),
    user: userNameSchema.optional(),
    timeoutSeconds: z
      .number()
      .int()
      .min(1)
      .max(MAX_EXEC_SECONDS)
      .optional()
      .meta({
        description:
          'After this time the command is killed. A request without a stream then gets the error `timeout`, whose ' +
          '`details` have the end of `stdout` and `stderr`; a stream ends with the event `error`. Absent: ' +
          '300 for a request without a stream, no limit for a stream or a background process.',
      }),
    stdin: z.string().max(MAX_STDIN_CHARACTERS).optional(),
    background: z.boolean().optional().meta({
      description: 'Replies as soon as the process runs, and leaves it running.',
    }),
  })
  .meta({ id: 'Exec' });
export type ExecRequest = z.infer<typeof execRequestSchema>;

export const execReplySchema = z
  .object({
    exitCode: z
      .number()
      .int()
      .meta({ description: "The command's exit code, or 128 plus the number of the signal that ended it." }),
    signal: z.string().nullable().meta({ description: 'The signal that ended the command.' }),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z
      .boolean()
      .meta({ description: 'Whether the output was longer than a reply can hold; the rest was dropped.' }),
    durationMs: z.number().int(),
    autoResumed: z.boolean().meta({ description: 'Whether this request woke the sandbox.' }),
  })
  .meta({ id: 'ExecReply' });
export type ExecReply = z.infer<typeof execReplySchema>;

export const backgroundReplySchema = z
  .object({ jobId: idSchema('job'), process: processViewSchema, autoResumed: z.boolean() })
  .meta({ id: 'BackgroundReply' });
export type BackgroundReply = z.infer<typeof backgroundReplySchema>;

/** The events of a streamed command, by name: `start`, then output, then `end` or `error`. */
export const EXEC_EVENT_DATA = {
  start: z.object({ pid: z.number().int(), autoResumed: z.boolean() }),
  stdout: z.object({ data: z.string() }),
  stderr: z.object({ data: z.string() }),
  end: z.object({ exitCode: z.number().int(), signal: z.string().nullable(), durationMs: z.number().int() }),
  error: errorBodySchema,
} as const;
export type ExecEventName = keyof typeof EXEC_EVENT_DATA;
export type ExecEventData<N extends ExecEventName> = z.infer<(typeof EXEC_EVENT_DATA)[N]>;

/** The events of the output of a service or background process. The process was started by an earlier request. */
export const OUTPUT_EVENT_DATA = {
  start: EXEC_EVENT_DATA.start.pick({ pid: true }),
  stdout: EXEC_EVENT_DATA.stdout,
  stderr: EXEC_EVENT_DATA.stderr,
  end: EXEC_EVENT_DATA.end.pick({ exitCode: true, signal: true }),
} as const;
