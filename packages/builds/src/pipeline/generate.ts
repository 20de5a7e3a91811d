/**
 * One build, from its goal to an application that answers: every step up to `checks`, and `failed` when one of them
 * fails (R4). The worker has only `ready` to say.
 *
 * Each stage can be begun again. A worker that takes over finds the job in the stage that the last one died in, ends
 * what that one left running, and goes on from there; what a runner made is kept and not paid for twice.
 */
import { type LeasedJob, LeaseLost, requireLease } from '@torpor/engine';
import { type BuildState, type SandboxId, type Service, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { documentation, documentsItself } from '../docs/documentation.ts';
import { finishFailed } from '../jobs/finish.ts';
import { type BuildJob, findJob } from '../jobs/job.ts';
import { readFiles, storeFiles } from '../jobs/stored-files.ts';
import { type JobChange, noteEvent, transition } from '../jobs/transition.ts';
import type { BuildLog } from '../logs/build-log.ts';
import { cleanLine } from '../logs/clean-line.ts';
import type { BuildCapabilities } from '../ports/sandboxes.ts';
import { CANNOT_PAUSE } from '../preview/pause.ts';
import { checkFiles, type GeneratedFile } from '../runners/generated-files.ts';
import { BuildFailed, friendly } from './build-failed.ts';
import { install } from './install.ts';
import { untilLive } from './live-check.ts';
import { describeProject, type Project } from './project.ts';
import { endSandboxes } from './tidy.ts';
import { DEV_SERVER, WORKSPACE, WORKSPACE_PATH } from './workspace.ts';

/** What a build has made when it is about to be ready. */
export type Made = Pick<JobChange, 'sandboxId' | 'port' | 'previewUrl' | 'workspacePath'>;

/** Those that this has to say. */
type Stage = 'starting' | 'scaffold' | 'code' | 'deps' | 'checks';

export interface Attempt {
  readonly ctx: BuildContext;
  readonly held: LeasedJob;
  readonly log: BuildLog;
  /** Fires when the job is no longer ours: cancelled, lost, or the server stops. */
  readonly signal: AbortSignal;
  /** The sandboxes that this attempt has made, for the case that it must leave. */
  readonly own: Set<SandboxId>;
}

export async function generate(attempt: Attempt, job: BuildJob): Promise<Made> {
  try {
    return await build(attempt, job);
  } catch (thrown) {
    // Nobody's failure: whoever has the job now decides about it.
    if (attempt.signal.aborted || thrown instanceof LeaseLost) throw thrown;
    throw await fail(attempt, job, thrown);
  }
}

async function build(attempt: Attempt, job: BuildJob): Promise<Made> {
  const { ctx, log } = attempt;
  await endSandboxes(ctx, job);
  let { status } = job;
  await ctx.pass('build.queued');
  if (status === 'queued') status = await step(attempt, job, 'starting');
  else log.line('torpor', `Taken up again in ${status}.`);
  if (status === 'starting' || status === 'checks') status = await step(attempt, job, 'scaffold');
  if (status === 'scaffold') status = await step(attempt, job, 'code');
  if (job.runner === 'none') return simulate(attempt, job, status);
  const files = await writeCode(attempt, job);
  const project = describeProject(files, job.wantedPort);
  log.line('torpor', `${files.length} files, ${project.framework} on port ${project.port}.`);
  if (status === 'code') await step(attempt, job, 'deps');
  log.phase = 'deps';
  const workbench = await furnish(attempt, job, files, project);
  await step(attempt, job, 'checks');
  return check(attempt, job, workbench, project);
}

async function step(attempt: Attempt, job: BuildJob, to: Stage): Promise<BuildState> {
  const { ctx, held, log } = attempt;
  const done = await ctx.db.transaction(async (tx) => {
    await requireLease(tx, held);
    return transition(tx, job.id, to, { at: ctx.clock.now() });
  });
  if (done === undefined) throw new LeaseLost(held);
  log.phase = to;
  await ctx.pass(`build.${to}`);
  return done.status;
}

/** Without a runner there is nothing to build; the states are passed through all the same (R14). */
async function simulate(attempt: Attempt, job: BuildJob, status: BuildState): Promise<Made> {
  attempt.log.line('torpor', 'There is no runner: nothing is built.');
  if (status === 'code') await step(attempt, job, 'deps');
  await step(attempt, job, 'checks');
  return {};
}

async function writeCode({ ctx, held, log, signal }: Attempt, job: BuildJob): Promise<GeneratedFile[]> {
  log.phase = 'code';
  const kept = await readFiles(ctx.db, job.id);
  if (kept.length > 0) return kept;
  const previous = job.previousId === null ? [] : await readFiles(ctx.db, job.previousId);
  const made = job.previousKind === 'rebuild' && previous.length > 0 ? previous : await run();
  const files = checkFiles(made, ctx.settings.files);
  await ctx.pass('build.made');
  await ctx.db.transaction(async (tx) => {
    await requireLease(tx, held);
    await storeFiles(tx, job.id, files);
    if (documentsItself(documentation(files, job.wantedPort, []))) {
      await noteEvent(tx, job.id, 'documentation.updated', { at: ctx.clock.now() });
    }
  });
  return files;

  async function run(): Promise<readonly GeneratedFile[]> {
    const runner = ctx.runners.get(job.runner);
    if (runner === undefined) {
      throw new TorporError('capability_unsupported', `This server has no runner "${job.runner}".`);
    }
    const { org, id: jobId, projectId, goal } = job;
    const output = (channel: string, text: string) => log.output(channel, text);
    const late = new AbortController();
    const timer = new AbortController();
    ctx.clock.sleep(ctx.settings.runnerMs, timer.signal).then(
      () => late.abort(new TorporError('timeout', 'The runner took too long.')),
      () => {},
    );
    try {
      const order = { org, jobId, projectId, goal, previous, output };
      return await runner.run(order, AbortSignal.any([signal, late.signal]));
    } catch (thrown) {
      throw late.signal.aborted ? late.signal.reason : thrown;
    } finally {
      timer.abort();
    }
  }
}

/** A sandbox with everything in it that the application needs. */
async function furnish(
  { ctx, log, signal, own }: Attempt,
  job: BuildJob,
  files: readonly GeneratedFile[],
  project: Project,
): Promise<SandboxId> {
  const { sandboxes, settings } = ctx;
  const { org, id: jobId } = job;
  const before = await previousBuild(ctx, job, log);
  const order = { org, jobId, lifetimeSeconds: settings.lifetimeSeconds, from: before?.sandboxId };
  const id = await sandboxes.create(order, signal);
  own.add(id);
  await ctx.pass('build.created');
  if (before !== undefined) {
    log.line('torpor', `Goes on from ${before.version ?? before.sandboxId}.`);
    const here = new Set(files.map(({ path }) => path));
    await sandboxes.remove(
      org,
      id,
      WORKSPACE,
      before.paths.filter((path) => !here.has(path)),
      signal,
    );
  }
  await sandboxes.write(org, id, WORKSPACE, files, signal);
  if (project.install === undefined) log.line('torpor', 'There is nothing to install.');
  else await install(ctx, job, id, project.install, log, signal);
  await ctx.pass('build.furnished');
  return id;
}

/** What an iteration starts from, while it is still there; else it starts empty, with the files that the runner made. */
async function previousBuild({ db, sandboxes }: BuildContext, job: BuildJob, log: BuildLog) {
  if (job.previousKind !== 'iteration' || job.previousId === null) return undefined;
  const previous = await findJob(db, job.previousId);
  if (previous === undefined || previous.sandboxId === null) return undefined;
  const found = await sandboxes.find(job.org, previous.sandboxId);
  if (found?.state !== 'paused' && found?.state !== 'running') return undefined;
  if (!(await sandboxes.capabilities(previous.sandboxId)).fork) {
    const lost = 'what the application wrote there while it ran does not come along';
    log.line('torpor', `The runtime cannot fork ${previous.buildVersion}: ${lost}.`);
    return undefined;
  }
  const paths = (await readFiles(db, previous.id)).map(({ path }) => path);
  return { sandboxId: previous.sandboxId, version: previous.buildVersion, paths };
}

async function check(
  { ctx, log, signal, own }: Attempt,
  job: BuildJob,
  workbench: SandboxId,
  project: Project,
): Promise<Made> {
  const { sandboxes, settings } = ctx;
  const { org, id: jobId } = job;
  await lookAround();
  if (project.check !== undefined) await ownCheck(project.check);
  const service: Service = {
    name: DEV_SERVER,
    command: project.start,
    cwd: WORKSPACE,
    port: project.port,
  };
  const order = { org, jobId, lifetimeSeconds: settings.lifetimeSeconds };
  const sandboxId = await sandboxes.publish(order, workbench, service, signal).catch((thrown: unknown) => {
    showOutput(log, thrown);
    throw thrown;
  });
  own.add(sandboxId);
  await ctx.pass('build.published');
  const status = await untilLive(ctx, sandboxId, project.port, signal);
  await ctx.pass('build.live');
  log.line('torpor', `The application answers (${status}).`);
  log.line('torpor', KEPT[(await sandboxes.capabilities(sandboxId)).pause]);
  return {
    sandboxId,
    port: project.port,
    previewUrl: sandboxes.urlOf(sandboxId, project.port),
    workspacePath: WORKSPACE_PATH,
  };

  /** Before anything else is blamed. */
  async function lookAround(): Promise<void> {
    const order = { command: 'echo ok', cwd: WORKSPACE, timeoutMs: settings.writeMs, output: () => {} };
    const { exitCode } = await sandboxes.run(org, workbench, order, signal);
    if (exitCode === 0) return;
    throw new TorporError('unreachable', 'The sandbox does not answer properly.', { sandboxId: workbench });
  }

  async function ownCheck(script: string): Promise<void> {
    const output = (channel: string, text: string) => log.output(channel, text);
    const command = `export PATH="$PWD/node_modules/.bin:$PATH" CI=true; ${script}`;
    const { exitCode } = await sandboxes.run(
      org,
      workbench,
      { command, cwd: WORKSPACE, timeoutMs: settings.checkMs, output },
      signal,
    );
    if (exitCode === 0) return;
    const review =
      job.previousKind === 'iteration' ? ' needs-review: the version before it is as it was.' : '';
    throw new TorporError('conflict', `The application's own check failed (exit ${exitCode}).${review}`);
  }
}

/** What a pause of the preview costs, by what its runtime keeps. */
const KEPT: Readonly<Record<BuildCapabilities['pause'], string>> = {
  memory: 'A pause keeps the files and the memory of the preview.',
  files: 'A pause keeps the files of the preview; its server starts anew with every wake.',
  none: `${CANNOT_PAUSE}; a rebuild makes it again.`,
};

/** What a service said before it failed is the only thing that tells why. */
function showOutput(log: BuildLog, thrown: unknown): void {
  const said = thrown instanceof TorporError ? thrown.toBody().details?.['output'] : undefined;
  if (typeof said === 'string') log.output(DEV_SERVER, `${said}\n`);
}

/** The one place where a build becomes failed: the same id in the log, the row, the event and the exception (R11). */
async function fail({ ctx, held, log }: Attempt, job: BuildJob, thrown: unknown): Promise<BuildFailed> {
  const debugId = ctx.uuid();
  // The last line of a program may stand in it.
  const words = cleanLine(friendly(thrown), ctx.secrets) ?? 'It failed.';
  ctx.report('a build failed', { jobId: job.id, debugId, error: thrown });
  log.line('torpor', `BUILD FAILED: ${words} debug_id: ${debugId}`);
  await log.flush();
  await endSandboxes(ctx, job).catch((error: unknown) =>
    ctx.report('the sandboxes of a failed build are left for later', { jobId: job.id, error }),
  );
  await ctx.pass('build.failing');
  const message = `Build failed. debug_id: ${debugId}. ${words}`;
  await finishFailed(ctx, held, job.id, { debugId, message, errorMessage: words });
  await ctx.pass('build.failed');
  return new BuildFailed(debugId, words, thrown);
}
