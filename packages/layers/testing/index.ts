export { type LoopDisk, loopDiskRefusal, mountLoopDisk } from './loop-disk.ts';
