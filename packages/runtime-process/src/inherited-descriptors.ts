/**
 * The descriptors that this server was started with and that everything it starts gets too. Node hands its own to
 * nobody and keeps back the low ones that it was started with, but those beyond a gap it does not find.
 */
import { readdir, readFile } from 'node:fs/promises';

const FDINFO = '/proc/self/fdinfo';
/** As Linux writes it there. */
const CLOSES_ON_EXEC = 0o2000000;
const STDERR = 2;

/** None where there is no /proc. A file that is just being read may be among them; then nobody has it later. */
export async function inheritedDescriptors(): Promise<number[]> {
  const names = await readdir(FDINFO).catch(() => []);
  const isHandedOn = async (name: string) => {
    const [, flags] =
      /^flags:\s*(\d+)$/m.exec(await readFile(`${FDINFO}/${name}`, 'utf8').catch(() => '')) ?? [];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSES_ON_EXEC) === 0;
  };
  const found = await Promise.all(
    names.map(async (name) => ((await isHandedOn(name)) ? [Number(name)] : [])),
  );
  return found.flat().filter((fd) => fd > STDERR);
}
