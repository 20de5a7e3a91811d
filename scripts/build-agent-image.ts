/**
 * `npm run build:agent-image <reference> [file]`: the image with the agent, Node and their libraries, as an archive that
 * `skopeo copy oci-archive:…`, `ctr images import` and `docker load` read.
 */
import { mkdir } from 'node:fs/promises';

import { dirname } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import { writeAgentImage } from '@torpor/pods';

const [reference, archive = 'dist/torpor-agent.tar'] = process.argv.slice(2);
if (reference === undefined || !/:[\w.-]+$/.test(reference)) {
  console.error(
    'Name the image with its tag: npm run build:agent-image registry.example.com/torpor-agent:0.1.0',
  );
  process.exit(10);
}
const agentDir = await bundleAgent();
await mkdir(dirname(archive), { recursive: true });
await writeAgentImage({ archive, reference, node: process.execPath, agentDir });
console.log(`${archive} has ${reference}`);
