/** Starts an instance: its directory, its workspace, its agent and its services. */
import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, rename } from 'node:fs/promises';
import type { Address, Instance, SealedCheckpoint, Started, StartSpec } from '@torpor/engine';
import type { KeyedMutex } from '@torpor/host';
import type { Service } from '@torpor/protocol';
import { mapWriteErrors, refuseRestrictions, startServices } from '@torpor/runtime-shared';
import { openContent } from './checkpoint-content.ts';
import { isTemplate } from './checkpoint-needs.ts';
import { setUpAgent, spawnAgent } from './instance/agent-setup.ts';
import type { InstancePaths } from './instance/instance-directory.ts';
import {
  type InstanceRecord,
  readInstanceRecord,
  type ServicePort,
  writeInstanceRecord,
} from './instance/instance-record.ts';
import { chooseFreePort } from './processes/free-port.ts';
import { killAll } from './processes/process-signals.ts';
import { chooseUser } from './processes/sandbox-users.ts';
import { processesUpTo, type RuntimeContext } from './runtime-context.ts';
import { detectsMappedWrites, writeBaseline } from './workspace/baseline.ts';
import { restoreWorkspace } from './workspace/workspace.ts';

export interface StartParts {
  readonly ctx: RuntimeContext;
  /** Serialises the choice of user ids and ports. */
  readonly reserving: KeyedMutex<'reserve'>;
  /** The address of a port of the instance, or null while no process of the instance listens. */
  readonly dial: (port: number) => Promise<Address | null>;
}

export async function startInstance(
  { ctx, reserving, dial }: StartParts,
  instance: Instance,
  from: SealedCheckpoint,
  spec: StartSpec,
  signal: AbortSignal,
): Promise<Started> {
  // The instance shares the network of the host, so no part of the network can be blocked.
  refuseRestrictions('process', spec.network);
  await openContent(from);
  await killAll(await processesUpTo(ctx, instance), signal);
  const record = await reserving.run('reserve', () => reserve(ctx, instance, spec), signal);
  const paths = ctx.directory.paths(instance);
  await createWorkspace(paths, from, record, signal);
  signal.throwIfAborted();
  const { child, identity } = await spawnAgent(
    { program: ctx.program, inherited: ctx.inherited, instance, paths, user: record.user },
    ctx.host,
  );
  await writeInstanceRecord(paths.record, { ...record, agent: identity });
  const setUp = { instance, paths, token: record.token, env: spec.env };
  const agent = await setUpAgent(setUp, child, ctx.clock, signal);
  try {
    await protectSocket(paths, record);
    const portFor = ({ name }: Service) => record.ports.find((port) => port.service === name)?.allocated;
    const { clock, settings } = ctx;
    await startServices({ agent, clock, settings, portFor, dial }, spec.services, signal);
  } finally {
    agent.close();
  }
  return { mode: 'files', lost: isTemplate(from) ? [] : ['processes'] };
}

/** Creates the directory first, so that the reconciler finds the instance if the server dies during the start. */
async function reserve(
  ctx: RuntimeContext,
  instance: Instance,
  { services }: StartSpec,
): Promise<InstanceRecord> {
  const { directory, host, users } = ctx;
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
 * Called when the agent has created its socket and no other program of the sandbox has run yet. From now on only the
 * server may change the directory: a sandbox that replaced the socket by a link would choose which socket of the host the
 * server connects to.
 */
async function protectSocket({ run }: InstancePaths, { user }: InstanceRecord): Promise<void> {
  if (user !== null)
    await mapWriteErrors(run, () => chown(run, process.getuid?.() ?? 0, process.getgid?.() ?? 0));
}

async function createWorkspace(
  paths: InstancePaths,
  from: SealedCheckpoint,
  { user }: InstanceRecord,
  signal: AbortSignal,
): Promise<void> {
  await mapWriteErrors(paths.run, async () => {
    await mkdir(paths.run, { mode: 0o700 });
    if (user === null) return;
    await chown(paths.run, user, user);
    // No other user may enter, whatever modes the sandbox gives to its home.
    await chown(paths.directory, process.getuid?.() ?? 0, user);
    await chmod(paths.directory, 0o710);
  });
  const baseline = await restoreWorkspace(from, paths.unfinishedHome, user, signal);
  if (await detectsMappedWrites(paths.directory)) await writeBaseline(paths.baseline, baseline);
  await rename(paths.unfinishedHome, paths.home);
}
