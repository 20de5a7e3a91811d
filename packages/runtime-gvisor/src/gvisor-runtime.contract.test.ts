import { describeGvisorContract } from '../testing/gvisor-contract.ts';

/** Tests of the contract that depend most on gVisor. `npm run test:gvisor` runs the whole contract. */
const SOME = [
  'runs a new instance from a template without memory',
  'returns gone, without files, for an instance that is wiped, destroyed, of another generation or unknown',
  'ends all generations up to the given one, and leaves newer ones and other sandboxes alone',
  'shows exactly the existing instances, alive or dead, and none that was destroyed',
  'finds running, frozen and dead instances again',
  'keeps the files for a start elsewhere',
  'leaves the instance frozen and intact when it fails or is aborted, and can be repeated',
  'keeps the files of an instance that died',
  'starts two instances that are then independent',
  'whose memory alone is missing or damaged can still be started from its files (R91, R93)',
  'with memory: the processes are restored, or reported as lost',
];

await describeGvisorContract(SOME);
