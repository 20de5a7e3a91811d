/**
 * Measures templates from images and Dockerfiles on gVisor, beside `buildah` (vfs, chroot) with the same Dockerfile.
 *
 *   npm run bench:templates            as root; a few minutes. Needs docker-registry; buildah is optional
 *   npm run bench:templates -- quick   fewer rounds
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { startRegistry, testImage, whyNoRegistry } from '@torpor/images/testing';
import { tinyRoot } from '../packages/runtime-gvisor/testing/tiny-root.ts';
import { startTorpor } from '../tests/crash/torpor-process.ts';
import { row, type Times, time, timesOf } from './measure.ts';
import { hasBuildah, openBuildah } from './templates/buildah.ts';

if (whyNoRegistry !== null) throw new Error(whyNoRegistry);
const ROUNDS = process.argv.includes('quick') ? 3 : 10;
const CREATES = 3 * ROUNDS;
/** Bytes of the one large layer. */
const LAYER = 40 * 1024 * 1024;
const REST_MS = 300;
const CLI = join(import.meta.dirname, '../packages/cli/bin/torpor.mjs');

const lines: [what: string, times: Times][] = [];
const measure = async (what: string, rounds: number, work: (i: number) => Promise<unknown>) => {
  const times = await time(rounds, work);
  lines.push([what, times]);
  return times;
};
const load = () => loadavg()[0]?.toFixed(1);

const place = await mkdtemp('/var/tmp/torpor-bench-templates-');
const registry = await startRegistry();
const server = await startTorpor(
  join(place, 'data'),
  { TORPOR_LOG_LEVEL: 'error', TORPOR_REGISTRY_NETWORKS: '127.0.0.1/32' },
  'gvisor',
);
const before = load();
try {
  const { sandboxes, templates } = server.torpor;
  const buildah = hasBuildah ? await openBuildah(join(place, 'buildah')) : undefined;

  // Each round has bytes of its own, so that no layer is there already.
  for (let i = 0; i < ROUNDS; i++) {
    const content = randomBytes(LAYER).toString('latin1');
    await registry.push('app', String(i), testImage([await tinyRoot({ '/big': content })]));
  }
  const nameOf = (i: number) => `${registry.name}/app:${i}`;
  await measure('image of 40 MB in a registry → a command in a sandbox', ROUNDS, async (i) => {
    await templates.create({ name: `app-${i}`, image: nameOf(i) });
    const { id } = await sandboxes.create({ template: `app-${i}` });
    await sandboxes.exec(id, 'true');
    await sandboxes.kill(id);
  });
  if (buildah !== undefined)
    await measure('the same with buildah from, buildah run', ROUNDS, (i) =>
      buildah.runIn(nameOf(i), ['/bin/sh', '-c', 'true']),
    );

  const context = join(place, 'context');
  await mkdir(context);
  const fill = (name: string) => `RUN for i in 1 2 3 4 5 6 7 8 9; do echo $i > /${name}$i; done`;
  const dockerfile = (last: string) =>
    writeFile(
      join(context, 'Dockerfile'),
      [`FROM ${nameOf(0)}`, fill('a'), fill('b'), fill('c'), `RUN echo ${last} > /last`].join('\n'),
    );
  const env = { ...process.env, TORPOR_URL: server.url, TORPOR_API_KEY: server.apiKey };
  const torporBuild = () =>
    promisify(execFile)(process.execPath, [CLI, 'template', 'build', context, '--name', 'built'], { env });
  const builders = [
    ['torpor template build', torporBuild] as const,
    ...(buildah === undefined ? [] : [['buildah bud --layers', () => buildah.build(context)] as const]),
  ];
  for (const [what, build] of builders) {
    await dockerfile('first');
    await measure(`${what}: four steps`, 1, build);
    await measure(`${what}: the last step changed`, ROUNDS, async (i) => {
      await dockerfile(`${what} ${i}`);
      await build();
    });
    await measure(`${what}: nothing changed`, ROUNDS, build);
  }

  // The templates take turns, so that a machine that becomes slower is the same for all.
  const sources = ['base', 'app-0', 'built'];
  const samples = new Map(sources.map((template) => [template, [] as number[]]));
  for (let i = 0; i < CREATES; i++) {
    for (const template of sources) {
      const began = performance.now();
      const { id } = await sandboxes.create({ template });
      await sandboxes.kill(id);
      // The first round fills caches.
      if (i > 0) samples.get(template)?.push(performance.now() - began);
      // Containers that the server makes in advance are made between the samples.
      await sleep(REST_MS);
    }
  }
  const times = new Map([...samples].map(([template, list]) => [template, timesOf(list)]));
  for (const [template, each] of times) lines.push([`create from ${template}, and kill`, each]);
  const ratio = (template: string) => (times.get(template)?.p50 ?? 0) / (times.get('base')?.p50 ?? 1);
  console.log(row(['milliseconds', 'p50', 'p95']));
  for (const [what, { p50, p95 }] of lines) console.log(row([what, p50, p95]));
  console.log(
    `create and kill from the image: ${ratio('app-0').toFixed(2)} × base; built: ${ratio('built').toFixed(2)} × base`,
  );
  console.log(`${ROUNDS} rounds each, ${CREATES} creates; load ${before} before, ${load()} after`);
} finally {
  await server.end();
  await registry.stop();
  await rm(place, { recursive: true, force: true });
}
