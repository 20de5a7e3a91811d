/** `npm run build:packages`: the packages `torpor` and `@torpor/sdk` as tarballs in dist/, as they are published. */
import { spawnSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { buildSdk } from './sdk-package/build.ts';
import { buildTorpor } from './torpor-package/build.ts';

const into = join(import.meta.dirname, '../dist');
await mkdir(into, { recursive: true });
await buildTorpor(join(into, 'torpor'));
await buildSdk(join(into, 'sdk'));
const args = ['pack', '--ignore-scripts', join(into, 'torpor'), join(into, 'sdk')];
const { status } = spawnSync('npm', args, { cwd: into, stdio: ['ignore', 'inherit', 'ignore'] });
process.exitCode = status ?? 1;
