/** What `torpor doctor` reports about runsc: which one is in use, its age, its limits, and which sandboxes use which. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LayerClaims } from '@torpor/layers';
import { bad, type CheckedHost, good, goodFor, type HostCheck } from '../host-checks/host-check.ts';
import { cachedCheckpoint, InstanceFiles } from '../instance/instance-files.ts';
import type { BuildStatus } from '../machine-wide-build.mjs';
import { findRunsc } from '../runsc/find-runsc.ts';
import { obstacleToBuilding, readBuildStatus } from './build.mjs';
import { isRecent, limitsOf, PINNED } from './releases.mjs';

export async function checkRunsc(host: CheckedHost): Promise<HostCheck> {
  const search = await findRunsc(host, host.signal);
  if (search.found === null) return bad('runsc', search.why, search.fix);
  const { program, version } = search.found;
  const age =
    version.releaseDate === null ? '' : `, ${monthsSince(version.releaseDate, new Date())} months old`;
  const limits = limitsOf(version.releaseDate).map((limit) => `; ${limit}`);
  const found = `${version.name} at ${program}${age}${limits.join('')}`;
  if (isRecent(version.releaseDate)) return good('runsc', found);
  const newer = buildState(readBuildStatus(host.machineWide));
  return goodFor('runsc', `${found}; ${newer}`, `use a newer runsc: ${newer}`);
}

function buildState(status: BuildStatus | undefined): string {
  if (status?.state === 'building') return `${PINNED.name} is being built (${status.progress})`;
  if (status?.state === 'failed') return `${PINNED.name} could not be built: ${status.why}`;
  const obstacle = obstacleToBuilding();
  if (obstacle !== undefined) return `${PINNED.name} is not built, because ${obstacle}`;
  return `${PINNED.name} will be built when the server starts next`;
}

/** @param day such as 20240729 */
export function monthsSince(day: number, now: Date): number {
  const months = (year: number, month: number) => year * 12 + month;
  const then = months(Math.floor(day / 10_000), Math.floor((day % 10_000) / 100) - 1);
  return months(now.getUTCFullYear(), now.getUTCMonth()) - then;
}

interface Use {
  running: number;
  warm: number;
  checkpoints: number;
}

/** Reads the data directory, so that it works while no server runs. */
export async function checkRunscUse({ dataDir }: CheckedHost): Promise<HostCheck> {
  const uses = await runscUses(dataDir);
  const lines = [...uses].map(
    ([version, { running, warm, checkpoints }]) =>
      `${version}: ${running} running, ${warm} warm, ${checkpoints} checkpoints`,
  );
  return good('sandboxes by runsc', lines.join('; ') || 'none');
}

async function runscUses(dataDir: string): Promise<Map<string, Use>> {
  const directory = join(dataDir, 'gvisor');
  const uses = new Map<string, Use>();
  const names = new Map<string, string>();
  const count = async (digest: string, what: keyof Use) => {
    const name = names.get(digest) ?? (await versionOf(dataDir, digest));
    names.set(digest, name);
    const use = uses.get(name) ?? { running: 0, warm: 0, checkpoints: 0 };
    uses.set(name, { ...use, [what]: use[what] + 1 });
  };
  const entries: readonly string[] = await readdir(directory).catch(() => []);
  if (!entries.includes('instances')) return uses;
  const files = new InstanceFiles(join(directory, 'instances'));
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record === undefined) continue;
    await count(record.runsc, cachedCheckpoint(record) === null ? 'running' : 'warm');
  }
  const claims = await LayerClaims.open(join(dataDir, 'checkpoints', 'references'));
  for (const { runsc } of claims.all()) {
    if (runsc !== null) await count(runsc, 'checkpoints');
  }
  return uses;
}

async function versionOf(dataDir: string, digest: string): Promise<string> {
  // Programs are at the second place until a server of this version has started on the data directory.
  for (const place of [join('checkpoints', 'programs'), 'gvisor']) {
    const version = await readFile(join(dataDir, place, 'runsc', digest, 'version'), 'utf8').catch(
      () => undefined,
    );
    if (version !== undefined) return version;
  }
  return `a runsc that is no longer kept (${digest.slice(0, 12)})`;
}
