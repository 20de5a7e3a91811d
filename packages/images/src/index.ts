export { Images } from './image-source.ts';
