/**
 * A process connected by a WebSocket: `GET /v1/sandboxes/{id}/terminal` is a terminal,
 * `GET /v1/sandboxes/{id}/exec` a command with pipes. Bytes travel in binary frames, everything else as
 * JSON in text frames.
 *
 * Terminal: binary frames are the terminal's bytes, both ways. Exec: the first frame is `{"exec": …}`;
 * binary frames to the server are stdin, and binary frames from it begin with one byte that names the
 * channel, so that no byte of the output has to be text.
 */
import { z } from 'zod';
import { execRequestSchema, userNameSchema } from './exec.ts';
import { errorBodySchema } from './views.ts';
import { wakeQuerySchema } from './wake.ts';

/** The subprotocol of both sockets. */
export const SOCKET_PROTOCOL = 'torpor.v1';

/** A browser cannot send headers with a WebSocket: there the key is a second subprotocol, with this prefix. */
export const KEY_PROTOCOL_PREFIX = 'torpor.key.';

/** The first byte of a binary frame from an exec socket. */
export const OUTPUT_CHANNELS = { stdout: 1, stderr: 2 } as const;
export type OutputChannel = keyof typeof OUTPUT_CHANNELS;

const MAX_SIDE = 10_000;
const sideSchema = z.coerce.number().int().min(1).max(MAX_SIDE);

/**
 * How many bytes of output the server may send before the client confirms them with `{"received": n}`.
 * A WebSocket has no flow control, so this window keeps a fast command from filling a slow
 * reader's memory. Absent: no limit.
 */
const windowSchema = z.coerce
  .number()
  .int()
  .min(1_024)
  .max(64 * 1024 * 1024);

export const terminalQuerySchema = z.strictObject({
  cols: sideSchema.default(80),
  rows: sideSchema.default(24),
  command: z.string().min(1).max(8_192).optional().meta({ description: 'Absent: a login shell.' }),
  cwd: z.string().min(1).max(4_096).optional(),
  user: userNameSchema.optional(),
  wake: wakeQuerySchema,
  window: windowSchema.optional(),
});
export type TerminalQuery = z.infer<typeof terminalQuerySchema>;

export const execSocketQuerySchema = z.strictObject({ window: windowSchema.optional() });

/** The command of an exec socket; stdin comes in frames, and the process ends with the socket. */
export const execSocketRequestSchema = execRequestSchema.omit({ stdin: true, background: true });
export type ExecSocketRequest = z.infer<typeof execSocketRequestSchema>;

/** Text frames to the server. */
export const socketRequestSchema = z.union([
  z.strictObject({ exec: execSocketRequestSchema }),
  z.strictObject({ resize: z.strictObject({ cols: sideSchema, rows: sideSchema }) }),
  z.strictObject({ closeStdin: z.literal(true) }),
  z.strictObject({ received: z.number().int().min(0) }),
]);
export type SocketRequest = z.infer<typeof socketRequestSchema>;

/** Text frames from the server: `started` comes first, `exit` or `error` last. */
export const socketNoticeSchema = z.union([
  z.object({ started: z.object({ pid: z.number().int(), autoResumed: z.boolean() }) }),
  z.object({
    exit: z.object({ code: z.number().int(), signal: z.string().nullable(), durationMs: z.number().int() }),
  }),
  z.object({ error: errorBodySchema }),
]);
export type SocketNotice = z.infer<typeof socketNoticeSchema>;
