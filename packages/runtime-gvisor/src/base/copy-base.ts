/** Copies the root of `base` that was made on this host into a layer, and completes it for guests. */
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { write, writeHome } from '../guest/base-root.ts';
import { COMMON_SETTINGS } from '../guest/base-settings.ts';
import { completeRoot } from '../guest/complete-root.ts';
import { GUEST_HOME } from '../guest/layout.ts';
import type { MachineBase } from './build-base.mjs';
import { treeDigest } from './tree-digest.mjs';

/** `into` is an empty directory. After a failure its contents are incomplete. */
export async function copyBase(base: MachineBase, into: string, signal: AbortSignal): Promise<void> {
  await mapWriteErrors(into, async () => {
    await programOutput('cp', ['-a', '--reflink=auto', '--', `${base.root}/.`, into], { signal });
    if ((await treeDigest(into, signal)) !== base.digest) throw changed(base);
    for (const [path, text] of Object.entries(COMMON_SETTINGS)) await write(join(into, path), text);
    await completeRoot(into);
    await writeHome(into, await lstat(join(into, GUEST_HOME)));
  });
}

/** Whether `copyBase` found that the root is not as it was made. */
export function isChanged(thrown: unknown): boolean {
  return thrown instanceof TorporError && thrown.code === 'conflict';
}

function changed({ root, digest }: MachineBase): TorporError {
  return new TorporError('conflict', `The root of "base" in ${root} has changed since it was made.`, {
    hint: 'It is made again in the background when the server starts, and by: torpor template rebuild base',
    details: { digest },
  });
}
