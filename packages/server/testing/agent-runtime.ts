/**
 * The in-memory runtime with a real agent for every sandbox that needs one. The agent is a separate process, confined
 * to a directory that survives pauses. Its processes do not survive.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import type { AgentAddress, Instance } from '@torpor/engine';
import { MemoryRuntime, type MemoryRuntimeOptions } from '@torpor/engine/testing';
import { connectAgent, SANDBOX_VARIABLE } from '@torpor/envd';
import type { SandboxId } from '@torpor/protocol';

interface RunningAgent {
  readonly child: ChildProcess;
  readonly address: AgentAddress;
}

export class AgentRuntime extends MemoryRuntime {
  readonly #agents = new Map<string, Promise<RunningAgent>>();
  readonly #place: Promise<string>;
  readonly #launched = new Set<SandboxId>();

  constructor(options: MemoryRuntimeOptions = {}) {
    super(options);
    this.#place = mkdtemp(join(tmpdir(), 'torpor-server-'));
  }

  override async agent(instance: Instance): Promise<AgentAddress> {
    const name = nameOf(instance);
    const running = this.#agents.get(name) ?? this.#launch(instance);
    this.#agents.set(name, running);
    return (await running).address;
  }

  override async destroy(upTo: Instance): Promise<void> {
    for (let generation = upTo.generation; generation >= 1; generation--) {
      await this.#end(nameOf({ ...upTo, generation }));
    }
    await super.destroy(upTo);
  }

  /** The directory with the files of a sandbox. */
  async homeOf(id: SandboxId): Promise<string> {
    return join(await this.#place, id);
  }

  /** Kills the agent of an instance. */
  async killAgent(instance: Instance): Promise<void> {
    (await this.#agents.get(nameOf(instance)))?.child.kill('SIGKILL');
  }

  async dispose(): Promise<void> {
    for (const name of [...this.#agents.keys()]) await this.#end(name);
    for (const sandboxId of this.#launched) await killLeftOver(sandboxId);
    await rm(await this.#place, { recursive: true, force: true });
  }

  async #end(name: string): Promise<void> {
    const running = await this.#agents.get(name)?.catch(() => undefined);
    this.#agents.delete(name);
    if (running === undefined || running.child.exitCode !== null || running.child.signalCode !== null) return;
    running.child.kill('SIGTERM');
    await once(running.child, 'exit');
  }

  async #launch({ sandboxId, generation }: Instance): Promise<RunningAgent> {
    this.#launched.add(sandboxId);
    const place = await this.#place;
    const home = await this.homeOf(sandboxId);
    await mkdir(home, { recursive: true });
    const socketPath = join(place, `${sandboxId.slice(-6)}-${generation}.sock`);
    const child = spawn(
      process.execPath,
      [
        join(await bundleAgent(), 'agent.mjs'),
        ...['--listen', `unix:${socketPath}`, '--root', home, '--state-dir', join(place, 'state')],
        ...['--sandbox-id', sandboxId],
      ],
      { stdio: ['ignore', 'ignore', 'pipe'], env: { PATH: process.env['PATH'] } },
    );
    await Promise.race([
      once(child.stderr as NodeJS.ReadableStream, 'data'),
      once(child, 'exit').then(() => Promise.reject(new Error('the agent did not start'))),
    ]);
    const token = `token-of-${sandboxId}-${generation}`;
    const client = connectAgent({ socketPath });
    await client.init({ accessToken: token, sandboxId });
    client.close();
    return { child, address: { address: { socketPath }, token } };
  }
}

/** A killed agent leaves its processes behind. They are found by the variable in their environment. */
async function killLeftOver(sandboxId: SandboxId): Promise<void> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
    if (!environment.split('\0').includes(`${SANDBOX_VARIABLE}=${sandboxId}`)) continue;
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // The process has already ended.
    }
  }
}

function nameOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}`;
}
