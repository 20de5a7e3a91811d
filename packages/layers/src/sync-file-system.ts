/** Makes a whole layer durable at once. */
import { run } from './program.ts';

/**
 * Writes back everything that is dirty on the file system the path is on. There is no call for one directory
 * only, and to sync the files one by one is slower by far than to sync them all.
 */
export async function syncFileSystem(path: string, signal?: AbortSignal): Promise<void> {
  await run('sync', ['-f', path], { signal });
}
