export { type TarEntry, tar } from './tar.ts';
