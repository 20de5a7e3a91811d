/** Brings a data directory of an earlier version up to date. */
import { adoptGvisorLayers, isOfVersion1 } from './adopt-gvisor-layers.ts';
import { adoptGvisorPrograms, hasGvisorPrograms } from './adopt-gvisor-programs.ts';

/** Called when a server starts, before the store is opened. May be repeated, also after a crash. */
export async function adoptDataDirectory(dataDir: string): Promise<void> {
  await adoptGvisorLayers(dataDir);
  await adoptGvisorPrograms(dataDir);
}

/** Whether a server of this version has to start on the data directory before anything else may read its store. */
export async function hasEarlierLayout(dataDir: string): Promise<boolean> {
  return (await isOfVersion1(dataDir)) || (await hasGvisorPrograms(dataDir));
}
