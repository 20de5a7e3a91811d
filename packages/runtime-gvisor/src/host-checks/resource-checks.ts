/** What sandboxes share: control groups to divide it by, room on the disk, memory. */
import { access, constants, readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { bad, type CheckedHost, good, type HostCheck, nearestDirectory } from './host-check.ts';

const MIB = 1024 ** 2;
const CONTROLLERS = ['memory', 'cpu', 'pids'] as const;
const CGROUPS = '/sys/fs/cgroup';
/** Below this a checkpoint of a middling sandbox does not fit any more. */
const DISK_BYTES = 1024 * MIB;
/** A few small sandboxes, and the server. */
const MEMORY_BYTES = 512 * MIB;

export async function checkCgroups(_: CheckedHost, at = CGROUPS): Promise<HostCheck> {
  const name = 'control groups';
  const unified = await readFile(join(at, 'cgroup.controllers'), 'utf8').catch(() => undefined);
  const version = unified === undefined ? 'v1' : 'v2';
  const there = unified === undefined ? await separate(at) : unified.trim().split(' ');
  const usable = CONTROLLERS.filter((controller) => there.includes(controller));
  const missing = CONTROLLERS.filter((controller) => !there.includes(controller));
  const isWritable = unified === undefined || (await canWrite(at));
  if (missing.length === 0 && isWritable) return good(name, `${version}: ${usable.join(', ')}`);
  const what = isWritable ? `${missing.join(', ')} missing` : 'read-only';
  const fix = `mount them writable at ${at}; until then limits on memory, processors and processes are not kept`;
  return bad(name, `${version}, ${what}`, fix);
}

/** In version 1 each controller is a tree of its own. */
async function separate(at: string): Promise<string[]> {
  const found = await Promise.all(
    CONTROLLERS.map(async (one) => ((await canWrite(join(at, one))) ? [one] : [])),
  );
  return found.flat();
}

function canWrite(path: string): Promise<boolean> {
  return access(path, constants.W_OK).then(
    () => true,
    () => false,
  );
}

export async function checkDisk({ dataDir }: CheckedHost): Promise<HostCheck> {
  const disk = await nearestDirectory(dataDir);
  const { bavail, bsize } = await statfs(disk);
  const detail = `${mebibytes(bavail * bsize)} free for ${dataDir}`;
  if (bavail * bsize >= DISK_BYTES) return good('disk', detail);
  return bad('disk', detail, 'make room: layers and memory images are kept there');
}

export async function checkMemory(_: CheckedHost, table = '/proc/meminfo'): Promise<HostCheck> {
  const [, kibibytes = '0'] = /^MemAvailable:\s+(\d+) kB$/m.exec(await readFile(table, 'utf8')) ?? [];
  const free = Number(kibibytes) * 1024;
  const detail = `${mebibytes(free)} available`;
  if (free >= MEMORY_BYTES) return good('memory', detail);
  return bad(
    'memory',
    detail,
    'pause sandboxes or stop other programs: each sandbox takes 60 MiB and what it uses',
  );
}

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / MIB).toLocaleString('en')} MiB`;
}
