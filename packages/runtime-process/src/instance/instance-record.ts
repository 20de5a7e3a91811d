/** The record of an instance (`instance.json`), from which a restarted server finds the instance again. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { isMissing } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';

const servicePortSchema = z.object({
  service: z.string(),
  declared: z.int(),
  /** The port that the service gets in `PORT`. */
  allocated: z.int(),
});

const agentSchema = z.object({ pid: z.int(), startedAt: z.string(), bootId: z.string() });

const recordSchema = z.object({
  version: z.literal(1),
  /** The user id of the processes. Null when they run as the server's user. */
  user: z.int().nullable(),
  ports: z.array(servicePortSchema).readonly(),
  /** The token that the agent requires of callers. */
  token: z.string(),
  /** Null until the agent was started. */
  agent: agentSchema.readonly().nullable(),
});

export type InstanceRecord = Readonly<z.infer<typeof recordSchema>>;
export type ServicePort = Readonly<z.infer<typeof servicePortSchema>>;
export type AgentIdentity = Readonly<z.infer<typeof agentSchema>>;

/** Atomic, but not durable: after a power loss no process of the instance is left either. */
export async function writeInstanceRecord(path: string, record: InstanceRecord): Promise<void> {
  await mapWriteErrors(path, async () => {
    await writeFile(`${path}.new`, JSON.stringify(record), { mode: 0o600 });
    await rename(`${path}.new`, path);
  });
}

/** Undefined when the record is missing or damaged. */
export async function readInstanceRecord(path: string): Promise<InstanceRecord | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
  try {
    return recordSchema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}
