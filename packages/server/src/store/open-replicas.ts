/** Opens the store outside this machine, as the configuration names it, with its data keys. */
import { hkdfSync } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type LayeredCheckpointStore, StoreReplicas } from '@torpor/checkpoint-store';
import type { Queryable, Replicas, StoreSettings } from '@torpor/engine';
import {
  type DataKeys,
  dataKeyId,
  EncryptedObjects,
  makeDataKeys,
  openObjectStore,
  readDataKeys,
  Throttle,
} from '@torpor/object-store';
import { TorporError } from '@torpor/protocol';
import type { ServerConfig } from '../config.ts';

/** The key file of a data directory. `--data-key-file` names another one, for example of several servers. */
export const DATA_KEY = 'data-key';

/** Undefined without `--store`. Does not call the store, which may be down when the server starts. */
export async function openReplicas(
  config: Pick<ServerConfig, 'dataDir' | 'store' | 'dataKeyFile' | 'awsEnvironment'>,
  store: LayeredCheckpointStore,
  db: Queryable,
  settings: StoreSettings,
  shared?: Uint8Array,
): Promise<Replicas | undefined> {
  const { dataDir, store: address, dataKeyFile = join(dataDir, DATA_KEY), awsEnvironment } = config;
  if (address === undefined) return undefined;
  const keys = await dataKeys(dataKeyFile, db, shared);
  const objects = new EncryptedObjects(
    await openObjectStore(address, awsEnvironment, settings),
    keys,
    new Throttle(settings.uploadBytesPerSecond),
  );
  return new StoreReplicas({ root: join(dataDir, 'checkpoints'), store, objects, keys });
}

/**
 * The data key of a node that has no key file: all nodes derive the same one from the secret that they share. Undefined for a
 * server that is alone, which makes a random one.
 */
export function sharedDataKey(
  { node }: Pick<ServerConfig, 'node'>,
  secret: Uint8Array,
): Uint8Array | undefined {
  return node === undefined
    ? undefined
    : new Uint8Array(hkdfSync('sha256', secret, '', 'torpor data key v1', 32));
}

/** A new key is made only where no object needs an older one. */
async function dataKeys(file: string, db: Queryable, shared: Uint8Array | undefined): Promise<DataKeys> {
  const found = await readDataKeys(file);
  if (found !== undefined) return found;
  const needed = await db.query<{ key_id: string }>(
    "SELECT DISTINCT key_id FROM stored_objects WHERE state = 'stored' AND kind <> 'identity'",
  );
  const make = async () => {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    return makeDataKeys(file, shared);
  };
  const idOfShared = shared === undefined ? undefined : dataKeyId(shared);
  const other = needed.find(({ key_id }) => key_id !== idOfShared);
  if (other === undefined) return make();
  throw new TorporError(
    'conflict',
    `The data key ${other.key_id} is needed to read the store, and ${file} is not there.`,
    { hint: 'Put the key file back, from a backup or from the server that made it. Nothing was changed.' },
  );
}
