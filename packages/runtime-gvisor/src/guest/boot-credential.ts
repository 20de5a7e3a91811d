/** Leaves the server's credential for an agent that is about to boot, in a root that a guest may have written to. */
import { constants } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CREDENTIAL_FILE } from './layout.ts';

/** `rootfs` is mounted and no process runs in it. A link at the path is removed and not followed. */
export async function writeBootCredential(rootfs: string, credential: string): Promise<void> {
  const path = join(rootfs, CREDENTIAL_FILE);
  await rm(path, { recursive: true, force: true });
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o400);
  try {
    await file.writeFile(credential);
  } finally {
    await file.close();
  }
}
