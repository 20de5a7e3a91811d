export { makeVersion1 } from './version-1.ts';
