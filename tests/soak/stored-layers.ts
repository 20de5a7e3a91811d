/** What a data directory of the gVisor runtime stores, and why. */
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { LayerClaims, type LayerId, openOverlayLayers } from '@torpor/layers';
import { InstanceFiles } from '../../packages/runtime-gvisor/src/instance/instance-files.ts';
import { layersInUse } from '../../packages/runtime-gvisor/src/instance/instance-layers.ts';

export interface StoredLayers {
  /** Sealed layers that no checkpoint claims and no instance has mounted. By design there are none. */
  readonly unneeded: readonly LayerId[];
  /** The number of layers of the largest stack of a checkpoint. */
  readonly largestStack: number;
}

/** The server may be running, but must not create or remove a checkpoint meanwhile. */
export async function storedLayers(dataDir: string): Promise<StoredLayers> {
  const checkpoints = join(dataDir, 'checkpoints');
  const claims = await LayerClaims.open(join(checkpoints, 'references'));
  const inUse = await layersInUse(new InstanceFiles(join(dataDir, 'gvisor', 'instances')));
  if (inUse === undefined) throw new Error('The record of an instance cannot be read.');
  const layers = await openOverlayLayers({
    root: join(checkpoints, 'layers'),
    clock: systemClock,
    randomBytes,
  });
  const unneeded: LayerId[] = [];
  for await (const { id, state } of layers.list())
    if (state === 'sealed' && !claims.isClaimed(id) && !inUse.has(id)) unneeded.push(id);
  return { unneeded, largestStack: Math.max(...claims.all().map(({ layers }) => layers.length)) };
}

/** The names of all that outlives a server. */
export async function storedNames(dataDir: string): Promise<string[]> {
  const directories = [
    'checkpoints/layers',
    'checkpoints/sealed',
    'checkpoints/staging',
    'checkpoints/removing',
    'checkpoints/references',
    'gvisor/instances',
    'gvisor/berths',
  ];
  const names = directories.map(async (directory) => {
    const found = await readdir(join(dataDir, directory));
    return found.map((name) => `${directory}/${name}`);
  });
  return (await Promise.all(names)).flat().sort();
}
