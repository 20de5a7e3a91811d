/** A wake on the node that has the checkpoint, on another node, and the floor of the latter. */
import { createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type ObjectStore, openObjectStore } from '@torpor/object-store';
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import { rest } from '../lifecycle/contender.ts';
import { bareFloor } from '../lifecycle/floors.ts';
import { row, time, timesOf } from '../measure.ts';
import { type BenchCluster, cordoned, pause, request } from './nodes.ts';

const LIMITS = { callMs: 60_000, stallMs: 30_000, minBytesPerSecond: 1 };

interface FetchedObject {
  readonly key: string;
  readonly bytes: number;
}

/** The sandbox moves to the other node and back, so that only the first round on each node fetches the layers of its template. */
export async function wakes(
  cluster: BenchCluster,
  { megabytes, rounds }: { readonly megabytes: number; readonly rounds: number },
): Promise<void> {
  const { world, nodes, scratch } = cluster;
  const bucket = await openObjectStore(world.store.address, world.store.env, LIMITS);
  const floorPlace = join(scratch, 'floor');
  await mkdir(floorPlace);
  const floor = await bareFloor(floorPlace, megabytes, 3);
  const id = await cluster.create(nodes[0], megabytes);
  const here: number[] = [];
  const elsewhere: number[] = [];
  const download: number[] = [];
  let fetchedBytes = 0;
  for (let i = 0; i < rounds; i++) {
    const home = await cluster.nodeOf(id);
    await pause(home, id);
    await rest();
    here.push((await time(1, () => request(home, id))).p50);

    const { checkpoint } = await pause(home, id);
    const target = cluster.other(home);
    await cordoned(target, home.name);
    await rest();
    elsewhere.push((await time(1, () => request(target, id))).p50);
    await target.torpor.nodes.uncordon(home.name);
    if ((await cluster.nodeOf(id)) !== target) throw new Error('The sandbox did not wake on the other node.');

    const objects = await fetchedOf(cluster, id, checkpoint.id);
    fetchedBytes = objects.reduce((sum, { bytes }) => sum + bytes, 0);
    await rest();
    download.push((await time(1, () => downloadAll(bucket, objects, join(scratch, 'raw')))).p50);
    await floor.round();
  }
  await nodes[0].torpor.sandboxes.kill(id);
  const restore = floor.lines().at(-1)?.times;
  await floor.end();
  const raw = timesOf(download);
  console.log(
    `\na wake by a request, to the first byte; a server that holds ${megabytes} MB, ${rounds} rounds`,
  );
  console.log(row(['', 'p50 ms', 'p95 ms']));
  const lines = [
    ['on the node that has it', timesOf(here)],
    ['on another node', timesOf(elsewhere)],
    [`raw download of the same objects, ${(fetchedBytes / 1e6).toFixed(1)} MB`, raw],
    ['runsc restore: the server alone', restore ?? timesOf([])],
  ] as const;
  for (const [what, times] of lines) console.log(row([what, times.p50, times.p95]));
  const least = raw.p50 + (restore?.p50 ?? 0);
  const ratio = (timesOf(elsewhere).p50 / least).toFixed(2);
  console.log(row(['raw download and runsc restore', least]));
  console.log(`a wake on another node takes ${ratio} × the raw download and restore`);
}

/** The objects that the last wake of the sandbox has fetched, as its event names them. */
async function fetchedOf(
  { world }: BenchCluster,
  id: SandboxId,
  checkpoint: CheckpointId,
): Promise<FetchedObject[]> {
  const [event] = await world.query<{ data: string }>(
    "SELECT data FROM events WHERE sandbox_id = $1 AND type = 'checkpoint.fetched' ORDER BY seq DESC LIMIT 1",
    [id],
  );
  const parts = event === undefined ? [] : (JSON.parse(event.data) as { parts: string[] }).parts;
  const objects = await world.query<FetchedObject & { kind: string; subject: string }>(
    `SELECT o.key, o.bytes, o.kind, o.subject FROM checkpoint_objects r JOIN stored_objects o ON o.key = r.key
     WHERE r.checkpoint_id = $1 AND o.kind <> 'marker'`,
    [checkpoint],
  );
  return objects.filter(({ kind, subject }) => parts.includes(kind) || parts.includes(`${kind} ${subject}`));
}

/** All at once, into files, neither decrypted nor unpacked. */
async function downloadAll(
  bucket: ObjectStore,
  objects: readonly FetchedObject[],
  into: string,
): Promise<void> {
  await mkdir(into, { recursive: true });
  await Promise.all(
    objects.map(({ key }, i) =>
      pipeline(Readable.from(bucket.get(key)), createWriteStream(join(into, `object-${i}`))),
    ),
  );
  await rm(into, { recursive: true });
}
