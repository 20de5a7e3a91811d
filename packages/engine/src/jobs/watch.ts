/**
 * Waits for the jobs of running sandboxes to end. An end that is missed here (the connection broke, the server died) is
 * found by the reconciler, which asks the agent.
 */
import { type SandboxId, TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { AgentAddress } from '../ports/runtime.ts';
import { findSandbox, type Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { runningJobs } from './job.ts';
import { isServing } from './serving.ts';
import { recordEnd } from './track.ts';

export class JobWatch {
  readonly #context: () => Context;
  readonly #watched = new Map<SandboxId, AbortController>();
  /** For each sandbox, the generation whose jobs were last compared with the agent's processes. */
  readonly #compared = new Map<SandboxId, number>();

  constructor(context: () => Context) {
    this.#context = context;
  }

  /** Begins to watch the jobs of a running sandbox, or begins again because a job was added. */
  begin(id: SandboxId): void {
    const ctx = this.#context();
    if (ctx.processes === undefined || ctx.stopping.aborted) return;
    this.#watched.get(id)?.abort();
    const controller = new AbortController();
    this.#watched.set(id, controller);
    const signal = AbortSignal.any([controller.signal, ctx.stopping]);
    ctx.background.run('watching jobs', async () => {
      try {
        await this.#watch(id, signal);
      } finally {
        if (this.#watched.get(id) === controller) this.#watched.delete(id);
      }
    });
  }

  isWatching(id: SandboxId): boolean {
    return this.#watched.has(id);
  }

  /** Called before the sandbox is frozen: an open connection would have to be reset. */
  end(id: SandboxId): void {
    this.#watched.get(id)?.abort();
    this.#watched.delete(id);
    this.#compared.delete(id);
  }

  /** Whether this server has compared the jobs of this generation with the agent's processes. */
  hasCompared({ id, generation }: Pick<Sandbox, 'id' | 'generation'>): boolean {
    return this.#compared.get(id) === generation;
  }

  noteCompared({ id, generation }: Pick<Sandbox, 'id' | 'generation'>): void {
    this.#compared.set(id, generation);
  }

  async #watch(id: SandboxId, signal: AbortSignal): Promise<void> {
    const ctx = this.#context();
    /** Tags of services whose process has ended and left a daemon that still listens. */
    const daemons = new Set<string>();
    for (;;) {
      // Begins a moment after the start, so that the first requests to a woken sandbox do not wait for this.
      await ctx.clock.sleep(ctx.settings.jobWatchDelayMs, signal).catch(() => {});
      if (signal.aborted) return;
      const sandbox = await findSandbox(ctx.db, id);
      const jobs = (await runningJobs(ctx.db, id)).filter(({ tag }) => !daemons.has(tag));
      if (sandbox?.state !== 'running' || jobs.length === 0) return;
      try {
        const agent = await agentOf(ctx, sandbox);
        const tags = jobs.map(({ tag }) => tag);
        const ended = await ctx.processes?.nextEnd(agent, tags, signal);
        const job = jobs.find(({ tag }) => tag === ended?.tag);
        if (ended === undefined || job === undefined) return;
        if (await isServing(ctx, sandbox, job)) daemons.add(job.tag);
        else await recordEnd(ctx, job, ended.end);
      } catch (thrown) {
        if (signal.aborted) return;
        if (TorporError.from(thrown).code === 'capability_unsupported') return;
        // The connection to the agent broke: the next pass of the loop shows whether the sandbox still runs.
        await ctx.clock.sleep(ctx.settings.jobWatchRetryMs, signal).catch(() => {});
      }
    }
  }
}

export function agentOf(ctx: Context, sandbox: Sandbox): Promise<AgentAddress> {
  const instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  return withTimeout(ctx.clock, ctx.settings.observeMs, 'Finding the agent', (signal) =>
    runtimeOf(ctx, sandbox).agent(instance, signal),
  );
}
