import { configDefaults, defineConfig } from 'vitest/config';

/** `vitest run --mode campaign` runs the long campaigns, and only those. */
export default defineConfig(({ mode }) => {
  const campaigns = mode === 'campaign';
  const pattern = campaigns ? '*.campaign.test.ts' : '*.test.ts';
  return {
    test: {
      include: ['packages/*/{src,testing,browser}', 'tests', 'scripts', 'examples'].map(
        (dir) => `${dir}/**/${pattern}`,
      ),
      exclude: [...configDefaults.exclude, ...(campaigns ? [] : ['**/*.campaign.test.ts'])],
      globalSetup: ['tests/setup/postgres.ts', 'tests/setup/leftovers.ts'],
      setupFiles: ['tests/setup/record-directories.ts'],
      // A root of 700 MB for each data directory would take most of the time; `debian-base.campaign.test.ts` uses one.
      env: { TORPOR_BASE: process.env['TORPOR_BASE'] ?? 'host' },
      // Tests open sockets, databases and processes: one that leaks must not share a process with the next.
      pool: 'forks',
      // One more than the two cores that the tests are made for: many of them wait for a process most of the time.
      maxWorkers: campaigns ? 2 : 3,
      testTimeout: campaigns ? 3_600_000 : 30_000,
      hookTimeout: 30_000,
      // An event that is awaited by asking again may come late on a busy machine; vitest alone would wait for one second.
      expect: { poll: { timeout: campaigns ? 60_000 : 20_000 } },
      // Named, because vitest would otherwise choose by who is looking.
      reporters: ['default'],
      // What a campaign has counted is worth reading also when it passed.
      silent: campaigns ? false : 'passed-only',
    },
  };
});
