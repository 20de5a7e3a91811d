/**
 * Prevents the removal of sealed checkpoints while a backup copies them. The backup is not the process of the server, so the
 * hold is a file in the store: `<root>/holds/<name>`. The backup touches the file every 5 s. A hold that was not touched for
 * a minute has expired: its process is gone.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapWriteErrors } from './storage-error.ts';

const HOLDS = 'holds';
const TOUCH_EVERY_MS = 5_000;
const VALID_MS = 60_000;

export interface StoreHold {
  /** Throws when the hold may have expired, for example because this process was stopped for a minute. */
  assertHeld(): void;
  release(): Promise<void>;
}

export async function holdStore(root: string): Promise<StoreHold> {
  const directory = join(root, HOLDS);
  const path = join(directory, `${process.pid}-${randomBytes(4).toString('hex')}`);
  await mapWriteErrors({ location: pathToFileURL(root).href }, path, async () => {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await writeFile(path, '', { mode: 0o600 });
  });
  let touchedAt = Date.now();
  let longestGapMs = 0;
  const timer = setInterval(() => {
    const now = Date.now();
    utimes(path, now / 1000, now / 1000).then(
      () => {
        longestGapMs = Math.max(longestGapMs, now - touchedAt);
        touchedAt = now;
      },
      // The gap grows until a later touch succeeds.
      () => {},
    );
  }, TOUCH_EVERY_MS);
  return {
    assertHeld: () => {
      if (Math.max(longestGapMs, Date.now() - touchedAt) < VALID_MS) return;
      throw new TorporError(
        'timeout',
        'The hold on the checkpoint store has lapsed: checkpoints may be missing.',
        {
          hint: 'This process was stopped for a minute or more. Take the backup again.',
        },
      );
    },
    release: async () => {
      clearInterval(timer);
      await rm(path, { force: true });
    },
  };
}

/** The name of a hold that has not expired. Deletes expired holds. */
export async function currentHold(root: string): Promise<string | undefined> {
  for (const name of await holds(root)) {
    const found = await stat(join(root, HOLDS, name)).catch(() => undefined);
    if (found !== undefined && Math.abs(Date.now() - found.mtimeMs) < VALID_MS) return name;
    await rm(join(root, HOLDS, name), { force: true });
  }
  return undefined;
}

async function holds(root: string): Promise<string[]> {
  return readdir(join(root, HOLDS)).catch((thrown: unknown) => {
    if (isMissing(thrown)) return [];
    throw thrown;
  });
}
