/** Starting an instance: a place of its own, its files, its agent, its services. */
import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, rename } from 'node:fs/promises';
import type { Address, Instance, SealedCheckpoint, Started, StartSpec } from '@torpor/engine';
import type { KeyedMutex } from '@torpor/host';
import type { Service } from '@torpor/protocol';
import { mapWriteErrors, refuseRestrictions, startServices } from '@torpor/runtime-shared';
import { setUpAgent, spawnAgent } from './agent-process.ts';
import { noticesWrites, writeBaseline } from './baseline.ts';
import { isTemplate, openContent } from './checkpoint-content.ts';
import { chooseFreePort } from './free-port.ts';
import { crowdUpTo, type Ground } from './ground.ts';
import type { InstancePaths } from './instance-directory.ts';
import {
  type InstanceRecord,
  readInstanceRecord,
  type ServicePort,
  writeInstanceRecord,
} from './instance-record.ts';
import { killAll } from './process-signals.ts';
import { chooseUser } from './sandbox-users.ts';
import { materialise } from './workspace.ts';

export interface StartParts {
  readonly ground: Ground;
  /** Users and ports are chosen one start at a time. */
  readonly reserving: KeyedMutex<'reserve'>;
  /** Where a port of the instance can be dialled. */
  readonly dial: (port: number) => Promise<Address | null>;
}

export async function startInstance(
  { ground, reserving, dial }: StartParts,
  instance: Instance,
  from: SealedCheckpoint,
  spec: StartSpec,
  signal: AbortSignal,
): Promise<Started> {
  // It shares the network of the host, and cannot be kept from any part of it.
  refuseRestrictions('process', spec.network);
  await openContent(from);
  await killAll(await crowdUpTo(ground, instance), signal);
  const record = await reserving.run('reserve', () => reserve(ground, instance, spec), signal);
  const paths = ground.directory.paths(instance);
  await makeHome(paths, from, record, signal);
  signal.throwIfAborted();
  const { child, identity } = await spawnAgent(
    { program: ground.program, inherited: ground.inherited, instance, paths, user: record.user },
    ground.host,
  );
  await writeInstanceRecord(paths.record, { ...record, agent: identity });
  const setUp = { instance, paths, token: record.token, env: spec.env };
  const agent = await setUpAgent(setUp, child, ground.clock, signal);
  try {
    await keepDoor(paths, record);
    const portFor = ({ name }: Service) => record.ports.find((port) => port.service === name)?.allocated;
    const { clock, settings } = ground;
    await startServices({ agent, clock, settings, portFor, dial }, spec.services, signal);
  } finally {
    agent.close();
  }
  return { kind: 'files', lost: isTemplate(from) ? [] : ['processes'] };
}

/** The directory is made first: from here on the instance is found by whoever looks for what is left over. */
async function reserve(ground: Ground, instance: Instance, { services }: StartSpec): Promise<InstanceRecord> {
  const { directory, host, users } = ground;
  const takenUsers = new Set<number>();
  const takenPorts = new Set<number>();
  for await (const other of directory.list()) {
    const record = await readInstanceRecord(directory.paths(other).record);
    if (typeof record?.user === 'number') takenUsers.add(record.user);
    for (const { allocated } of record?.ports ?? []) takenPorts.add(allocated);
  }
  const paths = await directory.make(instance);
  const ports: ServicePort[] = [];
  for (const { name, port } of services) {
    if (port === undefined) continue;
    const allocated = await chooseFreePort(takenPorts);
    takenPorts.add(allocated);
    ports.push({ service: name, declared: port, allocated });
  }
  const user = users === null ? null : await chooseUser(users, takenUsers, host);
  const token = randomBytes(32).toString('hex');
  const record: InstanceRecord = { version: 1, user, ports, token, agent: null };
  await writeInstanceRecord(paths.record, record);
  return record;
}

/**
 * The agent has made its socket and nothing else of the sandbox has run yet. From here on only we can change what
 * stands there: a sandbox that put a link in its place would choose which socket of the machine we talk to.
 */
async function keepDoor({ run }: InstancePaths, { user }: InstanceRecord): Promise<void> {
  if (user !== null)
    await mapWriteErrors(run, () => chown(run, process.getuid?.() ?? 0, process.getgid?.() ?? 0));
}

async function makeHome(
  paths: InstancePaths,
  from: SealedCheckpoint,
  { user }: InstanceRecord,
  signal: AbortSignal,
): Promise<void> {
  await mapWriteErrors(paths.run, async () => {
    await mkdir(paths.run, { mode: 0o700 });
    if (user === null) return;
    await chown(paths.run, user, user);
    // Nobody else comes in here, whatever modes the sandbox gives to its home.
    await chown(paths.directory, process.getuid?.() ?? 0, user);
    await chmod(paths.directory, 0o710);
  });
  const baseline = await materialise(from, paths.unfinishedHome, user, signal);
  if (await noticesWrites(paths.directory)) await writeBaseline(paths.baseline, baseline);
  await rename(paths.unfinishedHome, paths.home);
}
