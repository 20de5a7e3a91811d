import { describe, it } from 'vitest';

/**
 * The same runtime against a second Torpor as the provider. TORPOR_E2B_PROVIDER names its URL and TORPOR_E2B_KEY a
 * key of it; without, there is nobody to ask.
 */
describe.skipIf(process.env['TORPOR_E2B_PROVIDER'] === undefined)(
  'the e2b runtime at a second Torpor',
  () => {
    it.todo(
      'passes the contract suite: it needs the E2B face of the server, and a provider’s own ways to damage things',
    );
  },
);
