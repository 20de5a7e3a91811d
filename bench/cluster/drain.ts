/** How many sandboxes a drain moves per second. */
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxId } from '@torpor/protocol';
import { type BenchCluster, request } from './nodes.ts';

export async function drain(cluster: BenchCluster, count: number): Promise<void> {
  const [from, to] = cluster.nodes;
  const ids: SandboxId[] = [];
  for (let i = 0; i < count; i++) ids.push(await cluster.create(from, 0));
  await cluster.replicated();
  const began = performance.now();
  let { drain: progress } = await to.torpor.nodes.drain(from.name);
  while (progress !== null && progress.endedAt === null) {
    await delay(100);
    progress = (await to.torpor.nodes.get(from.name)).drain;
  }
  const seconds = (performance.now() - began) / 1_000;
  for (const id of ids) {
    if ((await cluster.nodeOf(id)) !== to) throw new Error(`${id} has not moved.`);
    await request(to, id);
  }
  await to.torpor.nodes.uncordon(from.name);
  for (const id of ids) await to.torpor.sandboxes.kill(id);
  const perSecond = (count / seconds).toFixed(2);
  console.log(`\n${count} sandboxes drained in ${seconds.toFixed(1)} s, ${perSecond} per second`);
}
