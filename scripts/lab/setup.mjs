/**
 * `npm run lab:setup`: builds the programs of the test lab, which some tests use when they are there. `npm test` never
 * runs this. The lab has versitygw, an S3 server that keeps its objects as plain files, the OpenTelemetry Collector, the
 * MCP Inspector, Helm for the chart, and a Kubernetes cluster with agent-sandbox. `npm run lab:setup s3`, `lab:setup
 * collector`, `lab:setup inspector`, `lab:setup helm` and `lab:setup kubernetes` build one of them.
 */
import { buildCollector } from './collector.mjs';
import { installInspector } from './inspector.mjs';
import { buildHelm, buildKubernetesLab } from './kubernetes.mjs';
import { buildVersitygw } from './versitygw.mjs';

const PARTS = {
  s3: { what: 'an S3 server', build: buildVersitygw },
  collector: { what: 'the OpenTelemetry Collector', build: buildCollector },
  inspector: { what: 'the MCP Inspector, from npm', build: installInspector },
  helm: { what: 'Helm', build: buildHelm },
  kubernetes: { what: 'a Kubernetes cluster (some twenty minutes)', build: buildKubernetesLab },
};

const wanted = process.argv.slice(2);
for (const [name, { what, build }] of Object.entries(PARTS)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const started = Date.now();
  console.log(`lab: ${what}, unless it is there`);
  try {
    await build((line) => console.log(`lab: ${line}`));
    console.log(`lab: ${name} is there, ${Math.round((Date.now() - started) / 1000)} s`);
  } catch (error) {
    console.error(`lab: ${name} could not be built: ${error instanceof Error ? error.message : error}`);
    console.error('lab: tests that need it will be skipped. Install Go 1.26 or newer and try again.');
    process.exitCode = 1;
  }
}
