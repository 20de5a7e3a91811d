import { describeRuntimeContract } from '@torpor/engine/testing';
import { makeProcessWorld } from '../testing/process-world.ts';

/** As this machine has it; where there are users for each, `npm run test:campaign` tries it without them too. */
if (process.getuid?.() === 0) {
  describeRuntimeContract('process, each as a user of its own', () => makeProcessWorld());
} else {
  describeRuntimeContract('process, all as the server’s user', () => makeProcessWorld({ users: null }));
}
