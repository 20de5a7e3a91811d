import { programOutput } from '@torpor/host';

/**
 * Writes back all dirty data of the file system that the path is on. There is no call for a single directory, and syncing
 * its files one by one is far slower than syncing the whole file system.
 */
export async function syncFileSystem(path: string, signal?: AbortSignal): Promise<void> {
  await programOutput('sync', ['-f', path], { signal });
}
