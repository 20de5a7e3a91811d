/**
 * The file descriptors that the server inherited and that its child processes would inherit too. Node opens its own
 * descriptors with close-on-exec, and marks the inherited ones up to the first unused number. Inherited descriptors
 * beyond such a gap stay open in children.
 */
import { readdir, readFile } from 'node:fs/promises';

const FDINFO = '/proc/self/fdinfo';
/** The value of O_CLOEXEC in `fdinfo` on Linux. */
const CLOSE_ON_EXEC = 0o2000000;
const STDERR = 2;

/**
 * Empty on systems without /proc. The result may contain a descriptor that was open only during this call; closing its
 * number in a child does no harm.
 */
export async function inheritedDescriptors(): Promise<number[]> {
  const names = await readdir(FDINFO).catch(() => []);
  const isInherited = async (name: string) => {
    const [, flags] =
      /^flags:\s*(\d+)$/m.exec(await readFile(`${FDINFO}/${name}`, 'utf8').catch(() => '')) ?? [];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  };
  const found = await Promise.all(
    names.map(async (name) => ((await isInherited(name)) ? [Number(name)] : [])),
  );
  return found.flat().filter((fd) => fd > STDERR);
}
