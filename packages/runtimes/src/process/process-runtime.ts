/**
 * The runtime of machines without root or gVisor: a directory and real processes.
 *
 * Everything that changes an instance takes its turn with the sandbox, so that what a caller gave up on
 * ends before what it asks for next begins.
 */
import { randomBytes } from 'node:crypto';
import { chown, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import type {
  Address,
  AgentAddress,
  Captured,
  Clock,
  Instance,
  MemoryVerdict,
  Observation,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
} from '@torpor/engine';
import { type Capabilities, type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import { type AgentProgram, setUpAgent, spawnAgent } from './agent-process.ts';
import { dropBaseline, readBaseline, writeBaseline } from './baseline.ts';
import { isTemplate, needsOf, openContent, workspaceIn, writeRecord } from './checkpoint-content.ts';
import { chooseFreePort } from './free-port.ts';
import { type HostProcesses, isSameProcess, type ProcessFacts } from './host-processes.ts';
import type { InstanceDirectory, InstancePaths } from './instance-directory.ts';
import { processesOf } from './instance-processes.ts';
import { type InstanceRecord, readInstanceRecord, type ServicePort, writeInstanceRecord } from './instance-record.ts';
import { ownedPort } from './owned-port.ts';
import { type Crowd, continueAll, killAll, stopAll } from './process-signals.ts';
import { chooseUser, type UserRange } from './sandbox-users.ts';
import { startServices } from './services.ts';
import { errnoOf, writing } from './storage-failure.ts';
import { Turns } from './turns.ts';
import { capture, materialise, syncFileSystem } from './workspace.ts';
