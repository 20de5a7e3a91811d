/** Prints the output of a process, stdout and stderr separately, and its exit as a note. */
import { once } from 'node:events';
import type { OutputEvent } from '@torpor/sdk';
import type { Cli } from './cli.ts';

export async function writeOutput(cli: Cli, events: AsyncIterable<OutputEvent>): Promise<void> {
  for await (const event of events) {
    if (cli.json) cli.answerLine(event, () => '');
    else if (event.type === 'stdout') await write(cli.io.stdout, event.data);
    else if (event.type === 'stderr') await write(cli.io.stderr, event.data);
    else if (event.type === 'end')
      cli.note(`The process ended with ${event.signal ?? `exit code ${event.exitCode}`}.`);
  }
}

/** Writes bytes, and waits while the reader is slow. */
export async function write(stream: NodeJS.WritableStream, bytes: Uint8Array | string): Promise<void> {
  if (!stream.write(bytes)) await once(stream, 'drain');
}
