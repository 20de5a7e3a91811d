/** How much a replication in the background slows down the wakes beside it. */
import { setTimeout as delay } from 'node:timers/promises';
import { rest } from '../lifecycle/contender.ts';
import { row, time, timesOf } from '../measure.ts';
import { type BenchCluster, pause, request } from './nodes.ts';

const MOST = 1.2;
/** The end of the other sandbox's instance, after its pause, slows a wake too, with or without a store. It is over then. */
const PAUSE_OVER_MS = 1_000;

/** Wakes a small sandbox while nothing else happens, and in the middle of the upload of another one's memory, in turns. */
export async function besideReplication(
  cluster: BenchCluster,
  { megabytes, rounds }: { readonly megabytes: number; readonly rounds: number },
): Promise<void> {
  const [node] = cluster.nodes;
  const { sandboxes } = node.torpor;
  const small = await cluster.create(node, 0);
  const waiting = async () =>
    (
      await cluster.world.query<{ count: string }>(
        "SELECT COUNT(*) AS count FROM checkpoints WHERE state = 'sealed' AND replicated_at IS NULL",
      )
    )[0]?.count;
  /** Its pages are the largest layer. */
  const isUploadingPages = async () =>
    (
      await cluster.world.query(
        "SELECT key FROM stored_objects WHERE kind = 'layer' AND state = 'writing' LIMIT 1",
      )
    ).length > 0;
  const wake = async () => {
    const { p50 } = await time(1, () => request(node, small));
    return p50;
  };
  const alone: number[] = [];
  const beside: number[] = [];
  for (let i = 0; i < rounds * 2; i++) {
    await pause(node, small);
    await rest();
    if (i % 2 === 0) {
      alone.push(await wake());
      continue;
    }
    // Another one each time: a second pause would hardly upload any pages.
    const large = await cluster.create(node, megabytes);
    await pause(node, small);
    await sandboxes.pause(large);
    while (!(await isUploadingPages()) && Number(await waiting()) > 0) await delay(20);
    await delay(PAUSE_OVER_MS);
    const took = await wake();
    // An upload that had ended before the wake says nothing.
    if (Number(await waiting()) > 0) beside.push(took);
    await cluster.replicated();
    await sandboxes.kill(large);
  }
  await sandboxes.kill(small);
  console.log(`\na wake to the first byte beside the upload of a checkpoint with ${megabytes} MB`);
  console.log(row(['', 'p50 ms', 'p95 ms']));
  const [quiet, busy] = [timesOf(alone), timesOf(beside)];
  console.log(row([`alone, ${quiet.count} wakes`, quiet.p50, quiet.p95]));
  console.log(row([`beside the upload, ${busy.count} wakes`, busy.p50, busy.p95]));
  console.log(`the upload makes a wake ${(busy.p50 / quiet.p50).toFixed(2)} × as long (at most ${MOST})`);
}
