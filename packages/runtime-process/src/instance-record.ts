/** What is written down about an instance, so that a server that was restarted can go on with it. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import type { ProcessFacts } from '@torpor/host';
import { isMissing } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';

export interface InstanceRecord {
  readonly version: 1;
  /** The user its processes run as; null when it is the server's own. */
  readonly user: number | null;
  readonly ports: readonly ServicePort[];
  /** What its agent asks of callers. */
  readonly token: string;
  /** Null until it was started. */
  readonly agent: AgentIdentity | null;
}

export interface ServicePort {
  readonly service: string;
  readonly declared: number;
  /** Where the service was told to listen. */
  readonly allocated: number;
}

export interface AgentIdentity extends Pick<ProcessFacts, 'pid' | 'startedAt'> {
  readonly bootId: string;
}

/**
 * Seen whole or not at all. It need not survive a loss of power, because no process of the instance does.
 */
export async function writeInstanceRecord(path: string, record: InstanceRecord): Promise<void> {
  await mapWriteErrors(path, async () => {
    await writeFile(`${path}.new`, JSON.stringify(record), { mode: 0o600 });
    await rename(`${path}.new`, path);
  });
}

/** Undefined when there is none that can be understood. */
export async function readInstanceRecord(path: string): Promise<InstanceRecord | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
  try {
    const record = JSON.parse(text) as InstanceRecord | null;
    return record?.version === 1 ? record : undefined;
  } catch {
    return undefined;
  }
}
