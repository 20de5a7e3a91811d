/** Checks the resources that sandboxes share: control groups, disk space, memory. */
import { access, constants, readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { bad, type CheckedHost, good, type HostCheck, nearestDirectory } from './host-check.ts';

const MIB = 1024 ** 2;
const CONTROLLERS = ['memory', 'cpu', 'pids'] as const;
const CGROUPS = '/sys/fs/cgroup';
/** With less, the checkpoint of a medium-sized sandbox does not fit. */
const DISK_BYTES = 1024 * MIB;
/** Enough for the server and a few small sandboxes. */
const MEMORY_BYTES = 512 * MIB;

export async function checkCgroups(_: CheckedHost, at = CGROUPS): Promise<HostCheck> {
  const name = 'control groups';
  const unified = await readFile(join(at, 'cgroup.controllers'), 'utf8').catch(() => undefined);
  const version = unified === undefined ? 'v1' : 'v2';
  const there = unified === undefined ? await controllersV1(at) : unified.trim().split(' ');
  const usable = CONTROLLERS.filter((controller) => there.includes(controller));
  const missing = CONTROLLERS.filter((controller) => !there.includes(controller));
  const isWritable = unified === undefined || (await canWrite(at));
  if (missing.length === 0 && isWritable) return good(name, `${version}: ${usable.join(', ')}`);
  const what = isWritable ? `${missing.join(', ')} missing` : 'read-only';
  const fix = `mount them writable at ${at}; until then limits on memory, processors and processes are not enforced`;
  return bad(name, `${version}, ${what}`, fix);
}

/** In version 1 each controller has a hierarchy of its own. */
async function controllersV1(at: string): Promise<string[]> {
  const found = await Promise.all(
    CONTROLLERS.map(async (controller) => ((await canWrite(join(at, controller))) ? [controller] : [])),
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
  return bad('disk', detail, 'free some space: layers and memory images are stored there');
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
