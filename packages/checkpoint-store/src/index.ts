export { openDirectoryStore } from './directory.ts';
