import { createRequire } from 'node:module';
import { whyNoRegistry } from '@torpor/images/testing';
import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { recordPassed } from './compatibility-table.ts';
import { e2bServer, OWN_BASE, runProgram } from './e2b-server.ts';
import { registryWithImage } from './registry-image.ts';

const require = createRequire(import.meta.url);
const noGvisor = await whyNoGvisor();

/** `npm run test:e2b`: every public method of both generations of the SDK, over http and TLS. */
describe.skipIf(noGvisor !== null)('an unchanged program of E2B’s, in gVisor', () => {
  it.each([
    ['e2b', 'http'],
    ['e2b', 'tls'],
    ['e2b-old', 'http'],
    ['e2b-old', 'tls'],
  ] as const)('calls every public method of %s over %s', async (name, way) => {
    const world = await e2bServer(way, 'gvisor', OWN_BASE);
    const registry = whyNoRegistry === null ? await registryWithImage() : undefined;
    try {
      const image = registry === undefined ? {} : { E2B_TEST_IMAGE: registry.image };
      const told = await runProgram({ env: { ...world.env, ...image } }, name);
      console.log(JSON.stringify({ name, way, told }));
      expect(told).toHaveLength(26);
      const { version } = require(`${name}/package.json`) as { version: string };
      const passed = told.map((line) => line.split(' ', 1)[0] ?? '');
      const over = way === 'tls' ? 'TLS' : way;
      recordPassed({ name: name === 'e2b' ? '`e2b`' : '`e2b`, an earlier version', version, over, passed });
    } finally {
      await registry?.stop();
      await world.dispose();
    }
  });
});
