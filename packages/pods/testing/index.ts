export { loadAllYaml } from '@kubernetes/client-node';
export { writeOciArchive } from '../src/image/oci-archive.ts';
export { FakeApi, type FakeObject, type Fault } from './fake-api.ts';
export { type LabApiServer, startLabApiServer } from './lab-api-server.ts';
export { type LabCluster, startLabCluster } from './lab-cluster.ts';
export { AGENT_IMAGE, PLAIN_IMAGE } from './lab-images.ts';
export { eventually } from './lab-processes.ts';
export { helmProgram, whyNoCluster, whyNoLab } from './lab-programs.mjs';
export { STORAGE_CLASS } from './lab-volumes.ts';
