export { lookUpIn, makeOutside } from './network-world.ts';
export { type OutsideServers, outsideServers } from './outside-servers.ts';
