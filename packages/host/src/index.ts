export { allDone } from './all-done.ts';
export { type ReplacedFile, replaceFile, syncDirectory, writeFileDurably } from './durable-write.ts';
export { errnoOf, isMissing } from './errno.ts';
export { exists } from './exists.ts';
export { forEachBounded } from './for-each-bounded.ts';
export { type GiveWay, givingWay } from './give-way.ts';
export { bootTime } from './guard/boot-time.ts';
export { Guard } from './guard/guard.ts';
export { type GuardTargets, joinTargets, NO_TARGETS } from './guard/guard-targets.ts';
export { KeyedMutex } from './keyed-mutex.ts';
export {
  hostMountNamespace,
  type MountNamespace,
  mountsBelow,
  refuseMountsBelow,
} from './mounts/mount-namespace.ts';
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
export { cleanLine } from './programs/clean-line.ts';
export { minimalEnvironment, searchPath } from './programs/environment.ts';
export { Launcher, type ProgramResult, type RunningProgram, sharedLauncher } from './programs/launcher.ts';
export { LineBuffer } from './programs/line-buffer.ts';
export { ProgramFailure } from './programs/program-failure.ts';
export {
  type ProgramOptions,
  programNotInstalled,
  programOutput,
  programTimedOut,
  runProgram,
} from './programs/run-program.ts';
export { type Libraries, librariesOf } from './programs/shared-libraries.ts';
export { streamProgram } from './programs/stream-program.ts';
export { rejectOnAbort } from './reject-on-abort.ts';
export { removeTree } from './remove-tree.ts';
export { sha256Of, sha256OfFile } from './sha256.ts';
export { ByteReader } from './tar/byte-reader.ts';
export { nextTarHeader, type TarHeader, tarContent } from './tar/tar-header.ts';
