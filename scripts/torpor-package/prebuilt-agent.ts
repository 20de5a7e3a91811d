/** Takes the place of `@torpor/agent` in the published package: the agent is built already, and is only copied. */
import { randomUUID } from 'node:crypto';
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BundleOptions } from '@torpor/agent';
import { copyNativeLibraries, publish } from '../../packages/agent/src/bundle-files.ts';

/** Relative to this file's place in the package. */
const PREBUILT = join(import.meta.dirname, '../dist');

export async function bundleAgent({ dataDir, into }: BundleOptions = {}): Promise<string> {
  const directory = into ?? (dataDir === undefined ? undefined : join(dataDir, 'agent'));
  if (directory === undefined) throw new Error('An installed agent needs a directory to be copied to.');
  const built = await readFile(join(PREBUILT, 'stamp'), 'utf8');
  const stamp = `${built} ${process.platform}-${process.arch}`;
  if ((await readFile(join(directory, 'stamp'), 'utf8').catch(() => '')) === stamp) return directory;
  const work = `${directory}-${randomUUID()}`;
  try {
    await mkdir(work, { recursive: true });
    for (const file of ['agent.mjs', 'sudo.cjs']) await cp(join(PREBUILT, file), join(work, file));
    // For the machine that Torpor is installed on, which may be another than the one that built the package.
    await copyNativeLibraries(work);
    await writeFile(join(work, 'stamp'), stamp);
    await publish(work, directory);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return directory;
}
