/**
 * Finds out whether the gVisor runtime works on this host, by trying it once. A success is recorded in the data directory
 * for this machine, kernel and build of runsc. A failure is not recorded, because an operator may fix its cause.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findRunsc } from '../runsc/find-runsc.ts';
import { runscBuild } from '../runsc/runsc-version.ts';
import type { CheckedHost, HostCheck } from './host-check.ts';
import { checkBoot, FIRST_CHECKS, KERNEL_CHECKS } from './host-checks.ts';
import { machineIdentity } from './machine-identity.ts';

export type Probe =
  | {
      readonly ok: true;
      readonly program: string;
      /** Of runsc. */
      readonly version: string;
    }
  /** One line for the operator: what is missing, and what to do. */
  | { readonly ok: false; readonly why: string };

export async function probeGvisor(host: CheckedHost): Promise<Probe> {
  const first = await firstFailure(FIRST_CHECKS, host);
  if (first !== undefined) return { ok: false, why: sentence(first) };
  const search = await findRunsc(host, host.signal);
  if (search.found === null) return { ok: false, why: `${search.why}; ${search.fix}` };
  const { program, version } = search.found;

  const build = await runscBuild(program);
  const proof = JSON.stringify({ ...(await machineIdentity()), runsc: build });
  const record = join(host.dataDir, 'gvisor', 'probe.json');
  if ((await readFile(record, 'utf8').catch(() => '')) !== proof) {
    const failed = await firstFailure([...KERNEL_CHECKS, checkBoot], host);
    if (failed !== undefined) return { ok: false, why: sentence(failed) };
    await recordSuccess(record, proof);
  }
  return { ok: true, program, version: version.name };
}

async function firstFailure(checks: typeof FIRST_CHECKS, host: CheckedHost): Promise<HostCheck | undefined> {
  for (const check of checks) {
    const result = await check(host);
    if (!result.ok) return result;
  }
  return undefined;
}

function sentence({ name, detail, fix }: HostCheck): string {
  return `${name}: ${detail}; ${fix ?? ''}`;
}

/** Renames a complete file into place, because two servers may write the record at once. */
async function recordSuccess(path: string, proof: string): Promise<void> {
  await mkdir(join(path, '..'), { recursive: true, mode: 0o700 });
  await writeFile(`${path}.${process.pid}`, proof, { mode: 0o600 });
  await rename(`${path}.${process.pid}`, path);
}
