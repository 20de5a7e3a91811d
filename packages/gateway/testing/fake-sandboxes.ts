/** Fake sandboxes: a test sets their state and the addresses of their ports. */
import type { Address, AgentAddress } from '@torpor/engine';
import { bareSandboxId, type SandboxId, TorporError } from '@torpor/protocol';
import type { SandboxDirectory, SandboxInfo } from '../src/sandbox-directory.ts';

export interface FakeSandbox {
  info: SandboxInfo;
  readonly ports: Map<number, Address>;
  agent: AgentAddress | undefined;
  /** Runs during a wake, before the sandbox runs; may throw. */
  onWake: (signal: AbortSignal) => Promise<void>;
  readonly wakes: number[];
  dials: number;
  /** Leases that are not released yet. */
  leases: number;
  /** Leases that were ever taken. */
  leasesTaken: number;
}

let made = 0;

export class FakeSandboxes implements SandboxDirectory {
  readonly #all = new Map<SandboxId, FakeSandbox>();

  make(more: Partial<SandboxInfo> = {}): FakeSandbox & { readonly id: SandboxId; readonly bare: string } {
    const id: SandboxId = `sbx_${String(++made).padStart(20, 'a')}`;
    const info: SandboxInfo = {
      id,
      org: 'default',
      name: null,
      state: 'running',
      generation: 1,
      startedAt: 0,
      autoResume: true,
      preview: 'public',
      dialect: 'native',
      services: [],
      reason: null,
      lostCheckpoint: null,
      ...more,
    };
    const sandbox = {
      id,
      bare: bareSandboxId(id),
      info,
      ports: new Map<number, Address>(),
      agent: undefined,
      onWake: async () => {},
      wakes: [] as number[],
      dials: 0,
      leases: 0,
      leasesTaken: 0,
    };
    this.#all.set(id, sandbox);
    return sandbox;
  }

  /** Knows a sandbox under an id that another node has made. */
  adopt(id: SandboxId, sandbox: FakeSandbox): void {
    this.#all.set(id, { ...sandbox, info: { ...sandbox.info, id } });
  }

  become(id: SandboxId, change: Partial<SandboxInfo>): void {
    const sandbox = this.#get(id);
    sandbox.info = { ...sandbox.info, ...change };
  }

  async find(id: SandboxId): Promise<SandboxInfo | undefined> {
    return this.#all.get(id)?.info;
  }

  async wake({ id }: SandboxInfo, signal: AbortSignal): Promise<void> {
    const sandbox = this.#get(id);
    sandbox.wakes.push(sandbox.info.generation);
    await sandbox.onWake(signal);
    this.become(id, { state: 'running', generation: sandbox.info.generation + 1 });
  }

  async dial({ id }: SandboxInfo, port: number): Promise<Address | null> {
    const sandbox = this.#get(id);
    sandbox.dials++;
    this.#assertRunning(sandbox);
    return sandbox.ports.get(port) ?? null;
  }

  async agent({ id }: SandboxInfo): Promise<AgentAddress> {
    const sandbox = this.#get(id);
    this.#assertRunning(sandbox);
    if (sandbox.agent === undefined) throw new TorporError('unreachable', 'The sandbox has no agent.');
    return sandbox.agent;
  }

  async openPorts({ id }: SandboxInfo): Promise<readonly number[]> {
    return [...this.#get(id).ports.keys()];
  }

  keepAwake(id: SandboxId): () => void {
    const sandbox = this.#get(id);
    sandbox.leases++;
    sandbox.leasesTaken++;
    return () => {
      sandbox.leases--;
    };
  }

  #get(id: SandboxId): FakeSandbox {
    const sandbox = this.#all.get(id);
    if (sandbox === undefined) throw new Error(`The test did not create ${id}.`);
    return sandbox;
  }

  #assertRunning({ info }: FakeSandbox): void {
    if (info.state !== 'running') throw new TorporError('transitioning', `The sandbox is ${info.state}.`);
  }
}
