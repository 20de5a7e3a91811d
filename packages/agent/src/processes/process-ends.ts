/**
 * Waits for the first of several processes to end, without reading their output. The call is not part of E2B's wire, so
 * it is plain JSON.
 */
import { TorporError } from '@torpor/protocol';
import type { ProcessTable, TrackedProcess } from './process-table.ts';

/** Without `end`, the agent knows no process with this tag. */
interface EndedProcess {
  readonly tag: string;
  readonly end?: { readonly exited: boolean; readonly exitCode: number; readonly status: string };
}

const MAX_TAGS = 4_096;

/** Throws unless the body has a list of tags. */
export function parseTags(body: unknown): string[] {
  const { tags } = (body ?? {}) as { readonly tags?: unknown };
  const isList = Array.isArray(tags) && tags.length > 0 && tags.length <= MAX_TAGS;
  if (isList && tags.every((tag) => typeof tag === 'string')) return tags;
  throw new TorporError('invalid_request', 'Name the processes by their tags.');
}

/** Rejects when the signal fires first. */
export function firstEnd(
  table: ProcessTable,
  tags: readonly string[],
  signal: AbortSignal,
): Promise<EndedProcess> {
  const over = tags.map((tag) => endOfTag(table, tag)).find((one) => one !== undefined);
  if (over !== undefined) return Promise.resolve(over);
  return new Promise((resolve, reject) => {
    const wanted = new Set<string | undefined>(tags);
    const stop = table.onEnd((process) => {
      if (!wanted.has(process.tag)) return;
      stop();
      resolve(describeEnd(process));
    });
    signal.addEventListener(
      'abort',
      () => {
        stop();
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

function endOfTag(table: ProcessTable, tag: string): EndedProcess | undefined {
  const process = table.search({ tag });
  if (process === undefined) return { tag };
  return process.exit === undefined ? undefined : describeEnd(process);
}

function describeEnd({ tag = '', exit }: TrackedProcess): EndedProcess {
  if (exit === undefined) return { tag };
  const { exited, exitCode, status } = exit;
  return { tag, end: { exited, exitCode, status } };
}
