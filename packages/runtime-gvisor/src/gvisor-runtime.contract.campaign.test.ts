import { describeGvisorContract } from '../testing/gvisor-contract.ts';

await describeGvisorContract();
