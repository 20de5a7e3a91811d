export { buildPage, type PageFile, type PageFiles } from './build-page.ts';
