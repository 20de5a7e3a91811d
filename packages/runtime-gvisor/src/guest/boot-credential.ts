/** Tells an agent that is about to be booted who the server is, over a root that the guest before it may have filled. */
import { constants } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CREDENTIAL_FILE } from './layout.ts';

/** `rootfs` is mounted and nothing runs in it. A link that lies in wait is removed, not followed. */
export async function leaveCredential(rootfs: string, credential: string): Promise<void> {
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
