/**
 * The runtime in memory with a real agent in every sandbox that is asked for one: a process of its own, confined
 * to a directory that outlives pauses. Its processes do not.
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

  /** Where the files of a sandbox lie. */
  async homeOf(id: SandboxId): Promise<string> {
    return join(await this.#place, id);
  }

  /** Its agent dies, as the process of any program may. */
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

/** An agent that was killed leaves its processes behind; the variable that marks them is still there. */
async function killLeftOver(sandboxId: SandboxId): Promise<void> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
    if (!environment.split('\0').includes(`${SANDBOX_VARIABLE}=${sandboxId}`)) continue;
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
}

function nameOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}`;
}
