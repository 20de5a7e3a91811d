import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { usableRunsc } from '../../testing/runsc-world.ts';
import { pinnedProgram } from './build.mjs';
import { PINNED } from './releases.mjs';
import { beginRunscUpgrade, type UpgradeOptions } from './upgrade.ts';

const isBuilt = existsSync(pinnedProgram()) && (await usableRunsc()) !== undefined;

function upgradeWith(build: NonNullable<UpgradeOptions['build']>, version = '0.0~20240729.0') {
  const adopted: string[] = [];
  const reported: string[] = [];
  const upgrade = beginRunscUpgrade({
    version,
    build,
    adopt: async (runsc) => void adopted.push(runsc.version),
    report: (what) => reported.push(what),
  });
  return { adopted, reported, upgrade };
}

describe('a server on an old runsc', () => {
  it.skipIf(!isBuilt)('uses the newer one once it is built and has booted a sandbox', async () => {
    const { adopted, reported, upgrade } = upgradeWith(async () => pinnedProgram());
    await upgrade?.over;

    expect(adopted).toEqual([PINNED.name]);
    expect(reported).toEqual(['a newer runsc is being built', 'a newer runsc is in use for new sandboxes']);
  });

  it('keeps its runsc when the build fails', async () => {
    const { adopted, reported, upgrade } = upgradeWith(async () => {
      throw new Error('there is no network');
    });
    await upgrade?.over;

    expect(adopted).toEqual([]);
    expect(reported).toContain('a newer runsc could not be built');
  });

  it('does not use a runsc that boots no sandbox', async () => {
    const { adopted, reported, upgrade } = upgradeWith(async () => '/bin/false');
    await upgrade?.over;

    expect(adopted).toEqual([]);
    expect(reported).toContain('a newer runsc could not be built');
  });

  it('aborts the build when the server stops, without a report', async () => {
    const { adopted, reported, upgrade } = upgradeWith(
      (options) =>
        new Promise((_, reject) => {
          options?.signal?.addEventListener('abort', () => reject(new Error('stopped')));
        }),
    );
    await upgrade?.stop();

    expect(adopted).toEqual([]);
    expect(reported).toEqual(['a newer runsc is being built']);
  });

  it('builds nothing when its runsc is recent', () => {
    expect(upgradeWith(async () => '', 'release-20260701.0').upgrade).toBeUndefined();
  });
});
