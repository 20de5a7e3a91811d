/** Lists every requirement with the test files that cite it. */
import { join } from 'node:path';
import { readCoverage } from './requirements/coverage.ts';

const { requirements, faults } = readCoverage(join(import.meta.dirname, '..'));
for (const { number, state, tests } of requirements) {
  console.log(`R${number}  ${state}  ${tests.join(', ')}`);
}
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exitCode = 1;
