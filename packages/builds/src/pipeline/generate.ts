/**
 * One build, from its goal to an application that answers: all stages up to `checks`, and `failed` when one of them
 * fails (R4). The worker then makes the build `ready`.
 *
 * Each stage can be repeated. A worker that takes over finds the job in the stage in which the previous worker died,
 * kills the sandboxes that it left, and continues from there. The files of a runner are stored, so that a model is not
 * paid for twice.
 */

import { type LeasedJob, LeaseLost, requireLease } from '@torpor/engine';
import { cleanLine } from '@torpor/host';
import { type BuildState, type SandboxId, type Service, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { documentation, hasDocumentation } from '../docs/documentation.ts';
import { finishFailed } from '../jobs/finish.ts';
import { type BuildJob, findJob } from '../jobs/job.ts';
import { readFiles, storeFiles } from '../jobs/stored-files.ts';
import { type JobChange, recordEvent, transition } from '../jobs/transition.ts';
import type { BuildLog } from '../logs/build-log.ts';
import type { BuildCapabilities } from '../ports/sandboxes.ts';
import { CANNOT_PAUSE } from '../preview/pause.ts';
import { checkFiles, type GeneratedFile } from '../runners/generated-files.ts';
import { BuildFailed, friendly } from './build-failed.ts';
import { interruptionOf } from './build-interrupted.ts';
import { install } from './install.ts';
import { killSandboxes } from './leftover-sandboxes.ts';
import { waitUntilLive } from './live-check.ts';
import { describeProject, type Project } from './project.ts';
import { DEV_SERVER, WORKSPACE, WORKSPACE_PATH } from './workspace.ts';

/** The result of a build that is about to become ready. */
export type BuildResult = Pick<JobChange, 'sandboxId' | 'port' | 'previewUrl' | 'workspacePath'>;

/** The stages that this file enters. */
type Stage = 'starting' | 'scaffold' | 'code' | 'deps' | 'checks';

export interface Attempt {
  readonly ctx: BuildContext;
  readonly leased: LeasedJob;
  readonly log: BuildLog;
  /** Fires when this worker must stop: the job is cancelled, its lease is lost, or the server stops. */
  readonly signal: AbortSignal;
  /** The sandboxes of this attempt, which the worker kills when it must stop. */
  readonly ownSandboxes: Set<SandboxId>;
}

export async function generate(attempt: Attempt, job: BuildJob): Promise<BuildResult> {
  try {
    return await build(attempt, job);
  } catch (thrown) {
    // Not a failure of the build: the present holder of the job decides about it.
    if (attempt.signal.aborted || thrown instanceof LeaseLost) throw thrown;
    const interruption = await interruptionOf(attempt, thrown);
    if (interruption !== undefined) throw interruption;
    throw await fail(attempt, job, thrown);
  }
}

async function build(attempt: Attempt, job: BuildJob): Promise<BuildResult> {
  const { ctx, log } = attempt;
  await killSandboxes(ctx, job);
  let { status } = job;
  await ctx.pass('build.queued');
  if (status === 'queued') status = await enterStage(attempt, job, 'starting');
  else log.line('torpor', `Continues in ${status}.`);
  if (status === 'starting' || status === 'checks') status = await enterStage(attempt, job, 'scaffold');
  if (status === 'scaffold') status = await enterStage(attempt, job, 'code');
  if (job.runner === 'none') return simulate(attempt, job, status);
  const files = await writeCode(attempt, job);
  const project = describeProject(files, job.wantedPort);
  log.line('torpor', `${files.length} files, ${project.framework} on port ${project.port}.`);
  if (status === 'code') await enterStage(attempt, job, 'deps');
  log.phase = 'deps';
  const buildSandbox = await prepareBuildSandbox(attempt, job, files, project);
  await enterStage(attempt, job, 'checks');
  return check(attempt, job, buildSandbox, project);
}

async function enterStage(attempt: Attempt, job: BuildJob, to: Stage): Promise<BuildState> {
  const { ctx, leased, log } = attempt;
  const done = await ctx.db.transaction(async (tx) => {
    await requireLease(tx, leased);
    return transition(tx, job.id, to, { at: ctx.clock.now() });
  });
  if (done === undefined) throw new LeaseLost(leased);
  log.phase = to;
  await ctx.pass(`build.${to}`);
  return done.status;
}

/** Without a runner there is nothing to build, but the build still passes all states (R14). */
async function simulate(attempt: Attempt, job: BuildJob, status: BuildState): Promise<BuildResult> {
  attempt.log.line('torpor', 'There is no runner: nothing is built.');
  if (status === 'code') await enterStage(attempt, job, 'deps');
  await enterStage(attempt, job, 'checks');
  return {};
}

async function writeCode({ ctx, leased, log, signal }: Attempt, job: BuildJob): Promise<GeneratedFile[]> {
  log.phase = 'code';
  const kept = await readFiles(ctx.db, job.id);
  if (kept.length > 0) return kept;
  const previous = job.previousId === null ? [] : await readFiles(ctx.db, job.previousId);
  const isRebuild = job.previousKind === 'rebuild';
  if (isRebuild && previous.length > 0) {
    log.line('torpor', `Rebuilds from the ${previous.length} stored files of ${job.previousId}.`);
  } else if (isRebuild) {
    log.line('torpor', `The files of ${job.previousId} were removed: the runner writes them again.`);
  }
  const made = isRebuild && previous.length > 0 ? previous : await run();
  const files = checkFiles(made, ctx.settings.files);
  await ctx.pass('build.generated');
  await ctx.db.transaction(async (tx) => {
    await requireLease(tx, leased);
    await storeFiles(tx, job.id, files);
    if (hasDocumentation(documentation(files, job.wantedPort, []))) {
      await recordEvent(tx, job.id, 'documentation.updated', { at: ctx.clock.now() });
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
      const input = { org, jobId, projectId, goal, previous, output };
      return await runner.run(input, AbortSignal.any([signal, late.signal]));
    } catch (thrown) {
      throw late.signal.aborted ? late.signal.reason : thrown;
    } finally {
      timer.abort();
    }
  }
}

/** Creates the build sandbox: with the files of the application and its dependencies. */
async function prepareBuildSandbox(
  { ctx, log, signal, ownSandboxes }: Attempt,
  job: BuildJob,
  files: readonly GeneratedFile[],
  project: Project,
): Promise<SandboxId> {
  const { sandboxes, settings } = ctx;
  const { org, id: jobId } = job;
  const before = await previousBuild(ctx, job, log);
  const options = { org, jobId, lifetimeSeconds: settings.lifetimeSeconds, from: before?.sandboxId };
  const id = await sandboxes.create(options, signal);
  ownSandboxes.add(id);
  await ctx.pass('build.created');
  if (before !== undefined) {
    log.line('torpor', `Starts from ${before.version ?? before.sandboxId}.`);
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
  await ctx.pass('build.installed');
  return id;
}

/**
 * The sandbox that an iteration is forked from, while it exists. Otherwise the iteration starts in an empty sandbox.
 */
async function previousBuild({ db, sandboxes }: BuildContext, job: BuildJob, log: BuildLog) {
  if (job.previousKind !== 'iteration' || job.previousId === null) return undefined;
  const previous = await findJob(db, job.previousId);
  if (previous === undefined || previous.sandboxId === null) return undefined;
  const found = await sandboxes.find(job.org, previous.sandboxId);
  if (found?.state !== 'paused' && found?.state !== 'running') return undefined;
  if (!(await sandboxes.capabilities(previous.sandboxId)).fork) {
    const lost = 'files that the application wrote while it ran are not copied';
    log.line('torpor', `The runtime cannot fork ${previous.buildVersion}: ${lost}.`);
    return undefined;
  }
  const paths = (await readFiles(db, previous.id)).map(({ path }) => path);
  return { sandboxId: previous.sandboxId, version: previous.buildVersion, paths };
}

async function check(
  { ctx, log, signal, ownSandboxes }: Attempt,
  job: BuildJob,
  buildSandbox: SandboxId,
  project: Project,
): Promise<BuildResult> {
  const { sandboxes, settings } = ctx;
  const { org, id: jobId } = job;
  await checkSandboxRuns();
  if (project.check !== undefined) await runProjectCheck(project.check);
  const service: Service = {
    name: DEV_SERVER,
    command: project.start,
    cwd: WORKSPACE,
    port: project.port,
  };
  const options = { org, jobId, lifetimeSeconds: settings.lifetimeSeconds };
  const sandboxId = await sandboxes
    .publish(options, buildSandbox, service, signal)
    .catch((thrown: unknown) => {
      logServiceOutput(log, thrown);
      throw thrown;
    });
  ownSandboxes.add(sandboxId);
  await ctx.pass('build.published');
  const status = await waitUntilLive(ctx, sandboxId, project.port, signal);
  await ctx.pass('build.live');
  log.line('torpor', `The application answers (${status}).`);
  log.line('torpor', PAUSE_NOTICES[(await sandboxes.capabilities(sandboxId)).pause]);
  return {
    sandboxId,
    port: project.port,
    previewUrl: sandboxes.urlOf(sandboxId, project.port),
    workspacePath: WORKSPACE_PATH,
  };

  /** Distinguishes a broken sandbox from a broken application. */
  async function checkSandboxRuns(): Promise<void> {
    const command = { command: 'echo ok', cwd: WORKSPACE, timeoutMs: settings.writeMs, output: () => {} };
    const { exitCode } = await sandboxes.run(org, buildSandbox, command, signal);
    if (exitCode === 0) return;
    throw new TorporError('unreachable', 'The sandbox does not run commands.', { sandboxId: buildSandbox });
  }

  async function runProjectCheck(script: string): Promise<void> {
    const output = (channel: string, text: string) => log.output(channel, text);
    const command = `export PATH="$PWD/node_modules/.bin:$PATH" CI=true; ${script}`;
    const { exitCode } = await sandboxes.run(
      org,
      buildSandbox,
      { command, cwd: WORKSPACE, timeoutMs: settings.checkMs, output },
      signal,
    );
    if (exitCode === 0) return;
    const review =
      job.previousKind === 'iteration' ? ' needs-review: the version before it is as it was.' : '';
    throw new TorporError('conflict', `The application's own check failed (exit ${exitCode}).${review}`);
  }
}

/** What a pause keeps of the preview, by capability of the runtime. */
const PAUSE_NOTICES: Readonly<Record<BuildCapabilities['pause'], string>> = {
  memory: 'A pause keeps the files and the memory of the preview.',
  files: 'A pause keeps the files of the preview; its server restarts with every resume.',
  none: `${CANNOT_PAUSE}; a rebuild creates it again.`,
};

/** The output of the service shows why it failed. */
function logServiceOutput(log: BuildLog, thrown: unknown): void {
  const said = thrown instanceof TorporError ? thrown.toBody().details?.['output'] : undefined;
  if (typeof said === 'string') log.output(DEV_SERVER, `${said}\n`);
}

/** Records a failure: log, row, event and exception get the same debug id (R11). */
async function fail({ ctx, leased, log }: Attempt, job: BuildJob, thrown: unknown): Promise<BuildFailed> {
  const debugId = ctx.uuid();
  // The message may contain a line of the program's output, so it is cleaned like a log line.
  const words = cleanLine(friendly(thrown), ctx.secrets) ?? 'The build failed.';
  ctx.report('a build failed', { jobId: job.id, debugId, error: thrown });
  log.line('torpor', `BUILD FAILED: ${words} debug_id: ${debugId}`);
  await log.flush();
  await killSandboxes(ctx, job).catch((error: unknown) =>
    ctx.report('the sandboxes of a failed build could not be killed yet', { jobId: job.id, error }),
  );
  await ctx.pass('build.failing');
  const message = `Build failed. debug_id: ${debugId}. ${words}`;
  await finishFailed(ctx, leased, job.id, { debugId, message, errorMessage: words });
  await ctx.pass('build.failed');
  return new BuildFailed(debugId, words, thrown);
}
