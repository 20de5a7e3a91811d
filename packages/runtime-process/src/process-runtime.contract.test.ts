import { describeRuntimeContract } from '@torpor/engine/testing';
import { makeProcessWorld } from '../testing/process-world.ts';

/** Uses one user per instance where this machine allows it; `npm run test:campaign` also tests without that. */
if (process.getuid?.() === 0) {
  describeRuntimeContract('process, each as a user of its own', () => makeProcessWorld());
} else {
  describeRuntimeContract('process, all as the server’s user', () => makeProcessWorld({ users: null }));
}
