import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseDockerfile } from './parse.ts';
import { pathPattern } from './path-pattern.ts';

const ROOT = join(import.meta.dirname, '../../..');

it('the Dockerfile of the server has the programs that gVisor needs, and starts the server', async () => {
  const { stages } = parseDockerfile(await readFile(join(ROOT, 'Dockerfile'), 'utf8'));
  expect(stages.map(({ name }) => name)).toEqual(['build', null]);
  const instructions = stages.at(-1)?.instructions ?? [];
  const commands = instructions.flatMap((one) => (one.is === 'run' ? [one.command] : [])).join('\n');
  const setup = await readFile(join(ROOT, 'scripts/setup/system-packages.mjs'), 'utf8');
  const needed = [...setup.matchAll(/gvisorNeeds\('[^']+', '([^']+)'/g)].map(([, name]) => name);
  expect(needed.length).toBeGreaterThan(3);
  for (const name of [...needed, 'runsc']) expect(commands).toContain(` ${name}`);
  const only = (kind: 'entrypoint' | 'cmd') =>
    instructions.flatMap((one) => (one.is === kind ? [one.command] : []));
  expect([...only('entrypoint'), ...only('cmd')]).toEqual([
    ['/usr/bin/tini', '--', 'torpor'],
    ['up', '--host', '0.0.0.0'],
  ]);
});

it('the Dockerfile of the server takes the package of the server, and not that of the SDK', async () => {
  const { stages } = parseDockerfile(await readFile(join(ROOT, 'Dockerfile'), 'utf8'));
  const copies = stages
    .flatMap(({ instructions }) => instructions)
    .flatMap((one) => (one.is === 'copy' ? [one.copy] : []));
  const { paths = '' } = copies.find(({ from }) => from === 'build') ?? {};
  const [pattern = ''] = String(paths).split(' ');
  const { version } = JSON.parse(await readFile(join(ROOT, 'packages/cli/package.json'), 'utf8'));
  const packed = [`torpor-${version}.tgz`, `torpor-sdk-${version}.tgz`].map((name) => `src/dist/${name}`);
  expect(packed.filter(pathPattern(pattern.slice(1)))).toEqual([packed[0]]);
});
