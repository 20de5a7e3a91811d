/**
 * A program that was written for E2B and knows nothing of Torpor: it finds its server by E2B's own variables.
 *
 *   E2B_API_KEY=… E2B_API_URL=… E2B_SANDBOX_URL=… node program.ts <package> <chapter>…
 *
 * Without chapters it runs all of them and checks that it has called every public method.
 */

import * as building from './building.ts';
import { openHandles, watchCalls } from './calls.ts';
import type { Chapter, Package } from './chapter.ts';
import * as commands from './commands.ts';
import * as copies from './copies.ts';
import * as files from './files.ts';
import * as gateways from './gateways.ts';
import { git } from './git.ts';
import * as lifecycle from './lifecycle.ts';
import * as surroundings from './surroundings.ts';

const CHAPTERS: Readonly<Record<string, Chapter>> = {
  commands: commands.commands,
  background: commands.background,
  terminals: commands.terminals,
  files: files.files,
  fileMetadata: files.fileMetadata,
  watching: files.watching,
  signedUrls: files.signedUrls,
  git,
  finding: lifecycle.finding,
  timeouts: lifecycle.timeouts,
  sleeping: lifecycle.sleeping,
  autoResume: lifecycle.autoResume,
  withoutMemory: lifecycle.withoutMemory,
  forks: copies.forks,
  snapshots: copies.snapshots,
  addresses: surroundings.addresses,
  network: surroundings.network,
  figures: surroundings.figures,
  templates: surroundings.templates,
  building: building.building,
  buildingMore: building.buildingMore,
  gateways: gateways.gateways,
  installers: gateways.installers,
  notYet: surroundings.notYet,
  clients: surroundings.clients,
  ending: lifecycle.ending,
};

const PACKAGES: Readonly<Record<string, () => Promise<unknown>>> = {
  e2b: () => import('e2b'),
  'e2b-old': () => import('e2b-old'),
};

const [name = 'e2b', ...wanted] = process.argv.slice(2);
const e2b = (await PACKAGES[name]?.()) as Package;
const sandbox = await e2b.Sandbox.create('base', {
  timeoutMs: 600_000,
  metadata: { purpose: 'a b&c=d' },
  envs: { GREETING: 'hello' },
  lifecycle: { onTimeout: 'pause', autoResume: true },
});
const failures: unknown[] = [];
try {
  const scene = { e2b, sandbox };
  const missed = await watchCalls(name, scene, await openHandles(scene));
  for (const [title, chapter] of Object.entries(CHAPTERS)) {
    if (wanted.length > 0 && !wanted.includes(title)) continue;
    const began = performance.now();
    try {
      await chapter(scene);
      console.log(`${title} ${Math.round(performance.now() - began)}`);
    } catch (cause) {
      failures.push(new Error(`The chapter "${title}" failed.`, { cause }));
    }
  }
  const never = wanted.length > 0 ? [] : missed();
  if (never.length > 0) failures.push(new Error(`Never called: ${never.join(', ')}.`));
} finally {
  await e2b.Sandbox.kill(sandbox.sandboxId);
}
if (failures.length > 0) throw new AggregateError(failures);
