import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Instance } from '@torpor/engine';
import { newInstance, nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { findMachineBase } from './build-base.mjs';

const run = promisify(execFile);
const why =
  (await whyNoGvisor()) ?? (findMachineBase() === undefined ? 'this machine has no root for base' : null);

/** A Debian package, a wheel and an npm package, made in the sandbox: tests have no network. */
const MAKE_PACKAGES = `set -e
mkdir -p /tmp/deb/DEBIAN /tmp/deb/usr/bin /tmp/wheel/hello /tmp/npm /tmp/repo
printf 'Package: hello-torpor\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: t <t@t>\\nDescription: test\\n' > /tmp/deb/DEBIAN/control
printf '#!/bin/sh\\necho from apt\\n' > /tmp/deb/usr/bin/hello-apt
chmod 755 /tmp/deb/usr/bin/hello-apt
dpkg-deb --root-owner-group --build /tmp/deb /tmp/repo/hello.deb
cd /tmp/repo && dpkg-scanpackages . > Packages
echo 'deb [trusted=yes] file:/tmp/repo ./' > /tmp/local.list
printf 'from setuptools import setup\\nsetup(name="hello", version="1", packages=["hello"])\\n' > /tmp/wheel/setup.py
echo 'word = "from pip"' > /tmp/wheel/hello/__init__.py
cd /tmp/wheel && pip wheel --quiet --no-build-isolation --no-index . 2> /dev/null
printf '{"name":"hello-npm","version":"1.0.0","bin":{"hello-npm":"main.js"}}' > /tmp/npm/package.json
printf '#!/usr/bin/env node\\nconsole.log("from npm");\\n' > /tmp/npm/main.js
cd /tmp/npm && npm pack --silent > /dev/null`;

const INSTALL = `set -e
sudo cp /tmp/local.list /etc/apt/sources.list
sudo apt-get -qq update
sudo apt-get -qq install --yes hello-torpor > /dev/null
pip install --quiet --no-index /tmp/wheel/hello-1-py3-none-any.whl 2> /dev/null
sudo npm install --silent --global --offline /tmp/npm/hello-npm-1.0.0.tgz
sudo mkdir /app && sudo chown user /app && echo from app > /app/file`;

const USE = 'hello-apt && python -c "import hello; print(hello.word)" && hello-npm && cat /app/file';
const USED = 'from apt\nfrom pip\nfrom npm\nfrom app\n';

describe.skipIf(why !== null)(
  `sandboxes of base${why === null ? '' : ` (${why})`}`,
  { timeout: 180_000 },
  () => {
    let world: GvisorWorld;
    let instance: Instance;
    beforeAll(async () => {
      world = await makeGvisorWorld({ hostResourcePoolSize: 0, ownBase: () => findMachineBase() });
      instance = await world.started({});
    }, 180_000);
    afterAll(async () => {
      await world?.dispose();
      await world?.close();
    }, 60_000);

    const output = async (command: string, where = instance) => (await world.run(where, command)).output;

    it('have the usual programs of a development machine', async () => {
      const programs = 'bash git curl python python3 pip node npm npx gcc make sudo ps nano jq';
      expect(await output(`for p in ${programs}; do command -v $p > /dev/null || echo $p; done`)).toBe('');
      expect(await output('python -m venv --help > /dev/null && node -p 1+1')).toBe('2\n');
      expect(await output('grep ^ID= /etc/os-release')).toBe('ID=debian\n');
    });

    it('show nothing of the host, and keep their memory when its system directories change', async () => {
      const sleeper = await world.started({});
      await world.program.write(sleeper, '/home/user/file', 'text');
      const asleep = await paused(world, sleeper, 'memory');
      const planted = ['/usr/local/bin', '/usr/share', '/opt', '/etc'].map((at) => `${at}/torpor-planted`);
      try {
        for (const path of planted) await writeFile(path, '');
        for (const path of planted) expect(await output(`ls ${path} 2> /dev/null`), path).toBe('');
        const fresh = await world.started({});
        for (const path of planted) expect(await output(`ls ${path} 2> /dev/null`, fresh), path).toBe('');
        expect(await world.runtime.checkUsable(asleep, unhurried)).toEqual({ usable: true });
        const woken = nextOf(sleeper);
        await startFrom(world, woken, asleep, 'memory');
        expect(await world.program.counter?.(woken)).toBe(1);
      } finally {
        for (const path of planted) await rm(path, { force: true });
      }
    });

    it('have a working locale, time zone, host name and certificates', async () => {
      expect(await output('locale 2>&1 | grep -c "C.UTF-8"')).not.toBe('0\n');
      expect(await output('date +%Z; getent hosts $(hostname) > /dev/null && echo named')).toBe(
        'UTC\nnamed\n',
      );
      expect(await output('head -c 27 /etc/ssl/certs/ca-certificates.crt')).toBe(
        '-----BEGIN CERTIFICATE-----',
      );
      expect(await output('ls -lR /etc /usr/local /dev 2>&1 > /dev/null | grep -v "Permission denied"')).toBe(
        '',
      );
    });

    it('share the layer of their root: ten more take next to no space', async () => {
      const layers = join(world.dataDir, 'checkpoints/layers');
      const kilobytes = async () =>
        Number((await run('du', ['--summarize', '--block-size=1K', layers])).stdout.split('\t')[0]);
      const before = await kilobytes();
      expect(before).toBeGreaterThan(100_000);
      for (let n = 0; n < 10; n++) await world.started({});
      expect((await kilobytes()) - before).toBeLessThan(10_000);
    });

    it('install packages with apt, pip and npm, which stay over a pause and in a fork', async () => {
      expect(await world.run(instance, MAKE_PACKAGES)).toMatchObject({ exitCode: 0 });
      expect(await world.run(instance, INSTALL)).toMatchObject({ exitCode: 0 });
      const asleep = await paused(world, instance, 'memory');
      const woken = nextOf(instance);
      await startFrom(world, woken, asleep, 'memory');
      expect(await output(USE, woken)).toBe(USED);
      const fork = newInstance();
      await startFrom(world, fork, asleep, 'files');
      expect(await output(USE, fork)).toBe(USED);
    });
  },
);
