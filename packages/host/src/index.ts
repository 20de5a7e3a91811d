export { syncDirectory, writeWhole } from './durable-write.ts';
export { forEachBounded } from './for-each-bounded.ts';
export { KeyedMutex } from './keyed-mutex.ts';
export { hostMountPlace, type MountPlace, mountsBelow, refuseMountsBelow } from './mounts/mount-place.ts';
export { type Mount, parseMounts } from './mounts/mount-table.ts';
export { Mutex } from './mutex.ts';
export {
  type HostProcesses,
  hostProcesses,
  isSameProcess,
  type Listener,
  type ProcessFacts,
} from './processes/host-processes.ts';
export { linuxProcesses } from './processes/linux-processes.ts';
export { type CommandOptions, hung, runCommand } from './programs/command.ts';
export { Launcher, launch, type ProgramEnd, type Running, usualLauncher } from './programs/launch.ts';
export { plainEnvironment, searchPath } from './programs/plain-environment.ts';
export { removeTree } from './remove-tree.ts';
export { capturing, errnoOf, isMissing, readingCheckpoint, writing } from './storage-failure.ts';
