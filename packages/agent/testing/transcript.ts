/** Collects a stream of process events. */
import type { ProcessEvent } from '@torpor/envd';

export interface Transcript {
  readonly pid: number;
  readonly droppedBytes: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly pty: string;
  readonly end:
    | {
        readonly exitCode: number;
        readonly exited: boolean;
        readonly status: string;
        readonly error?: string;
      }
    | undefined;
  readonly keepalives: number;
}

/** Reads until the stream ends, or until the transcript satisfies `until`. */
export async function transcribe(
  stream: AsyncIterable<{ event?: ProcessEvent | undefined }>,
  until: (transcript: Transcript) => boolean = () => false,
): Promise<Transcript> {
  let said: Transcript = {
    pid: 0,
    droppedBytes: 0,
    stdout: '',
    stderr: '',
    pty: '',
    end: undefined,
    keepalives: 0,
  };
  for await (const { event } of stream) {
    said = add(said, event);
    if (until(said)) break;
  }
  return said;
}

function add(said: Transcript, event: ProcessEvent | undefined): Transcript {
  switch (event?.event.case) {
    case 'start':
      return { ...said, pid: event.event.value.pid, droppedBytes: Number(event.event.value.droppedBytes) };
    case 'data': {
      const { output } = event.event.value;
      if (output.case === undefined) return said;
      return { ...said, [output.case]: said[output.case] + Buffer.from(output.value).toString() };
    }
    case 'end': {
      const { exitCode, exited, status, error } = event.event.value;
      return { ...said, end: { exitCode, exited, status, ...(error === undefined ? {} : { error }) } };
    }
    case 'keepalive':
      return { ...said, keepalives: said.keepalives + 1 };
    default:
      return said;
  }
}

/** A shell command, as clients start it. */
export function shell(command: string): { cmd: string; args: string[] } {
  return { cmd: '/bin/bash', args: ['-c', command] };
}
