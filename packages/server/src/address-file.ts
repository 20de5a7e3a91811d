/** Where the running server of a data directory can be found, for the command line. */
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Returns how to take it away again. A server that was killed leaves its file; the process number tells. */
export async function leaveAddress(dataDir: string, url: string): Promise<() => Promise<void>> {
  const file = join(dataDir, 'server.json');
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, `${JSON.stringify({ url, pid: process.pid })}\n`, { mode: 0o600 });
  await rename(unfinished, file);
  return () => rm(file, { force: true });
}
