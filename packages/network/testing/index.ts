export { lookUpIn, makeOutside } from './network-world.ts';
