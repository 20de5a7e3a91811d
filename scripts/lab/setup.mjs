/**
 * `npm run lab:setup`: builds the programs of the test lab, which some tests use when they are there. `npm test` never
 * runs this. Today the lab has one program: versitygw, an S3 server that keeps its objects as plain files.
 */
import { existsSync } from 'node:fs';
import { versitygwProgram } from '../../packages/object-store/testing/lab-program.mjs';
import { buildVersitygw } from './versitygw.mjs';

const started = Date.now();
const program = versitygwProgram();
if (existsSync(program)) {
  console.log(`lab: versitygw is there: ${program}`);
} else {
  console.log(`lab: building versitygw from its Go module into ${program}; this takes some minutes`);
  try {
    await buildVersitygw((line) => console.log(`lab: ${line}`));
    console.log(`lab: built versitygw, ${Math.round((Date.now() - started) / 1000)} s`);
  } catch (error) {
    console.error(`lab: versitygw could not be built: ${error instanceof Error ? error.message : error}`);
    console.error('lab: tests that need S3 will be skipped. Install Go 1.24 or newer and try again.');
    process.exitCode = 1;
  }
}
