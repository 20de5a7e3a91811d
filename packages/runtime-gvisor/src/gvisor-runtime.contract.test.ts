import { describeGvisorContract } from '../testing/gvisor-contract.ts';

/** Tests of the contract that depend most on gVisor. `npm run test:gvisor` runs the whole contract. */
const SOME = [
  'runs a new instance from a template, of which nothing came back from memory',
  'says gone, without files, of what is wiped, destroyed, of another generation or never was',
  'ends what is up to the generation, and leaves newer ones and other sandboxes alone',
  'shows exactly what is there, alive or dead, and nothing after it is destroyed',
  'finds running, frozen and dead instances again',
  'keeps the files for a start elsewhere',
  'leaves the instance frozen and whole when it fails or is aborted, and can be asked again',
  'keeps the files of an instance that died',
  'starts two instances that then go their own ways',
  'whose memory alone is missing or damaged still gives its files back (R91, R93)',
  'with memory: the processes come back as they were, or are said to be lost',
];

await describeGvisorContract(SOME);
