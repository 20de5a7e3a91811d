/** Checks the resources that sandboxes share: control groups, disk space, memory. */
import { readFile, statfs } from 'node:fs/promises';
import { errnoOf } from '@torpor/host';
import { canReflink, findProjectQuotas } from '@torpor/layers';
import { CONTROLLERS, findCgroups, tryCgroups } from '../container/cgroups.ts';
import { MAX_COPIED_BYTES } from '../warm/warm-bounds.ts';
import { bad, type CheckedHost, good, type HostCheck, nearestDirectory } from './host-check.ts';

const MIB = 1024 ** 2;
const CGROUPS = '/sys/fs/cgroup';
/** With less, the checkpoint of a medium-sized sandbox does not fit. */
const DISK_BYTES = 1024 * MIB;
/** Enough for the server and a few small sandboxes. */
const MEMORY_BYTES = 512 * MIB;

export async function checkCgroups(_: CheckedHost, at = CGROUPS): Promise<HostCheck> {
  const name = 'control groups';
  const fix = `mount them writable at ${at}; until then limits on memory, processors and processes are not enforced`;
  const host = await findCgroups(at);
  if (host === null) return bad(name, `none with ${CONTROLLERS.join(', ')}`, fix);
  const { version, controllers } = host;
  const missing = CONTROLLERS.filter((controller) => !controllers.includes(controller));
  if (missing.length > 0) return bad(name, `${version}, ${missing.join(', ')} missing`, fix);
  return tryCgroups(host, at).then(
    () => good(name, `${version}: ${controllers.join(', ')}`),
    (refused: Error) => bad(name, `${version}, no group can be made: ${refused.message}`, fix),
  );
}

export async function checkDisk({ dataDir }: CheckedHost): Promise<HostCheck> {
  const disk = await nearestDirectory(dataDir);
  const { bavail, bsize } = await statfs(disk);
  const detail = `${mebibytes(bavail * bsize)} free for ${dataDir}`;
  if (bavail * bsize >= DISK_BYTES) return good('disk', detail);
  return bad('disk', detail, 'free some space: layers and memory images are stored there');
}

/** Never a fault: everything works without reflinks. */
export async function checkReflinks({ dataDir }: CheckedHost): Promise<HostCheck> {
  const name = 'reflinks';
  try {
    return good(name, (await canReflink(await nearestDirectory(dataDir))) ? WITH_REFLINKS : WITHOUT_REFLINKS);
  } catch (thrown) {
    return good(name, `not known: ${dataDir} cannot be written (${errnoOf(thrown) ?? 'unknown'})`);
  }
}

const WITH_REFLINKS = 'yes: a paused sandbox can stay in memory however much it wrote';
const WITHOUT_REFLINKS = `no: a sandbox that wrote more than ${MAX_COPIED_BYTES / MIB} MiB leaves the memory when it is paused`;

/** Never a fault: without them the limit is watched. */
export async function checkProjectQuotas({ dataDir }: CheckedHost): Promise<HostCheck> {
  const { why } = await findProjectQuotas(await nearestDirectory(dataDir));
  return good('project quotas', why === null ? WITH_QUOTAS : `no (${why}): ${WITHOUT_QUOTAS}`);
}

const WITH_QUOTAS = 'yes: the kernel enforces `diskMb`, and `df` in a sandbox shows it';
const WITHOUT_QUOTAS =
  'a sandbox that exceeds `diskMb` is noticed and ended; `df` in a sandbox, its metrics and `torpor df` show the disk of ' +
  'this machine, and `torpor df` the limit beside it';

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
