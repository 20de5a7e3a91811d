/**
 * Loaded into a server before its own code (`node --expose-gc --import`). Collects all garbage for each connection to the
 * socket named by `MEMORY_PROBE`, and answers with the memory that is still in use.
 */
import { createServer } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

export interface MemoryReading {
  readonly rssBytes: number;
  readonly heapBytes: number;
  /** Memory of buffers, which is not in the heap. */
  readonly bufferBytes: number;
  /** Timers that have not fired and were not cleared. */
  readonly timers: number;
}

/** Objects that finalizers release are collected by the next run. */
const COLLECTIONS = 4;

const path = process.env['MEMORY_PROBE'];
// Sandboxes inherit the environment.
delete process.env['MEMORY_PROBE'];
if (path !== undefined && globalThis.gc !== undefined) listen(path, globalThis.gc);

function listen(at: string, collect: NodeJS.GCFunction): void {
  const server = createServer(async (socket) => {
    for (let n = 0; n < COLLECTIONS; n++) {
      collect();
      await nextTurn();
    }
    socket.end(JSON.stringify(read()));
  });
  server.listen(at);
  // The server decides when its process ends.
  server.unref();
}

function read(): MemoryReading {
  const { rss, heapUsed, arrayBuffers } = process.memoryUsage();
  const timers = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  return { rssBytes: rss, heapBytes: heapUsed, bufferBytes: arrayBuffers, timers };
}
