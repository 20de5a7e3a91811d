/**
 * Template builds: a client creates a build, uploads the files of its steps, starts it, and asks for its status.
 *
 * A build runs in the server that was asked to start it. When that server stops or dies, the next one runs it again: its
 * finished steps are in the cache. A build with credentials for a registry ends as an error instead, because they are in no
 * other place.
 */
import type { StepSandboxes } from '@torpor/build-steps';
import type { Clock, Database, Engine, Report } from '@torpor/engine';
import { type Resources, TorporError } from '@torpor/protocol';
import { Bases, type BasesContext } from './base.ts';
import {
  countBuilds,
  deleteBuildsOf,
  deleteFinished,
  findBuild,
  insertBuild,
  listAbandoned,
  listBuilds,
  listMakers,
  listNeverStarted,
  listOpen,
  setBuilding,
  setFailed,
  setReady,
  type TemplateBuild,
  takeOver,
} from './build.ts';
import { BuildLog, type LogLine, type LogPage, readLog } from './build-log.ts';
import { BuildRun, definitionOf, temporaryName } from './build-run.ts';
import { FileStore, type FindRemoteUpload } from './files/file-store.ts';
import { type BuildOrder, parseOrder, storedOrder } from './order.ts';
import type { TemplateBuildSettings } from './settings.ts';
import { Slots } from './slots.ts';

/** A build that has ended so many servers is not begun by another one. */
const MAX_RUNS = 3;

/** The sandboxes of one build carry its id, so that those of a dead server are found. */
interface BuildSandboxesOptions {
  readonly org: string;
  readonly buildId: string;
  readonly signal: AbortSignal;
  output(channel: string, text: string): void;
}

export interface TemplateBuildsContext extends BasesContext {
  readonly engine: Engine;
  readonly db: Database;
  readonly clock: Clock;
  readonly uuid: () => string;
  readonly report: Report;
  readonly serverId: string;
  readonly settings: TemplateBuildSettings;
  /** Only this server uses the directory. */
  readonly directory: string;
  /** Uploads of other nodes. Absent on a server that is alone. */
  readonly elsewhere?: FindRemoteUpload | undefined;
  sandboxes(options: BuildSandboxesOptions): StepSandboxes;
  /** Kills the sandboxes of a build whose server died. */
  killSandboxes(org: string, buildId: string): Promise<void>;
}

interface Running {
  readonly stop: AbortController;
  readonly done: Promise<void>;
}

export class TemplateBuilds {
  readonly files: FileStore;
  readonly #ctx: TemplateBuildsContext;
  readonly #bases: Bases;
  readonly #slots: Slots;
  readonly #running = new Map<string, Running>();
  readonly #stopping = new AbortController();
  #upkeep: Promise<void> = Promise.resolve();

  constructor(ctx: TemplateBuildsContext) {
    const { directory, elsewhere, clock, settings } = ctx;
    this.#ctx = ctx;
    this.#bases = new Bases(ctx);
    this.#slots = new Slots(settings.atOnce);
    this.files = new FileStore({ directory, elsewhere, clock, settings });
  }

  /** Builds of dead servers are run again, or ended, before the first request. */
  async start(): Promise<void> {
    await this.#adoptAbandoned();
    this.#upkeep = this.#runUpkeep();
  }

  /** The builds that run are given up: the next server runs them again, or ends them. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const { stop } of this.#running.values()) stop.abort(serverStopped());
    await Promise.allSettled([...[...this.#running.values()].map(({ done }) => done), this.#upkeep]);
  }

  /** `names` are those of the result: the template with each of its tags. */
  async create(
    org: string,
    template: string,
    names: readonly string[],
    resources: Resources = {},
  ): Promise<TemplateBuild> {
    const { db, clock, settings, uuid } = this.#ctx;
    const now = clock.now();
    const build: TemplateBuild = {
      id: uuid(),
      org,
      template,
      names,
      resources,
      status: 'waiting',
      owner: null,
      runs: 0,
      order: null,
      checkpointId: null,
      reason: null,
      step: null,
      createdAt: now,
      updatedAt: now,
      finishedAt: null,
    };
    await db.transaction(async (tx) => {
      if ((await countBuilds(tx, org, 'waiting')) >= settings.waitingPerOrg)
        throw tooMany(settings.waitingPerOrg, 'that were not started');
      await insertBuild(tx, build);
    });
    return build;
  }

  /** Resolves when the build is accepted. */
  async begin(org: string, template: string, id: string, order: BuildOrder): Promise<void> {
    const { db, clock, serverId, settings } = this.#ctx;
    const build = await this.get(org, template, id);
    if (this.#stopping.signal.aborted) throw serverStopped();
    const missing = await this.#missingFiles(org, order);
    if (missing !== undefined)
      throw new TorporError('invalid_request', `The files of "${missing.slice(0, 200)}" were not uploaded.`);
    await db.transaction(async (tx) => {
      if ((await countBuilds(tx, org, 'building')) >= settings.perOrg)
        throw tooMany(settings.perOrg, 'that run');
      if (await setBuilding(tx, build, serverId, storedOrder(order), clock.now())) return;
      throw new TorporError('conflict', `The build ${id} was started before.`, {
        hint: 'Create another build.',
      });
    });
    this.#launch({ ...build, owner: serverId }, order);
  }

  #launch(build: TemplateBuild, order: BuildOrder): void {
    const stop = new AbortController();
    const done = this.#run(build, order, stop.signal).finally(() => this.#running.delete(build.id));
    this.#running.set(build.id, { stop, done });
  }

  /** The source of a step whose files this server does not have. */
  async #missingFiles(org: string, { steps }: BuildOrder): Promise<string | undefined> {
    for (const step of steps)
      if (step.is === 'copy' && !(await this.files.has(org, step.filesHash))) return step.source;
    return undefined;
  }

  async get(org: string, template: string, id: string): Promise<TemplateBuild> {
    const build = await findBuild(this.#ctx.db, org, template, id);
    if (build !== undefined) return build;
    throw new TorporError('not_found', `The template "${template}" has no build ${id}.`);
  }

  list(org: string, template: string, limit: number): Promise<TemplateBuild[]> {
    return listBuilds(this.#ctx.db, org, template, limit);
  }

  /** The builds that made something, oldest first. */
  makers(org: string): Promise<TemplateBuild[]> {
    return listMakers(this.#ctx.db, org);
  }

  log(id: string, page: LogPage): Promise<LogLine[]> {
    return readLog(this.#ctx.db, id, page);
  }

  /** Forgets the builds of a deleted template, and gives up those that run. */
  async forget(org: string, template: string): Promise<void> {
    const deleted = await deleteBuildsOf(this.#ctx.db, org, template);
    for (const id of deleted) this.#running.get(id)?.stop.abort(templateDeleted());
  }

  async #run(build: TemplateBuild, order: BuildOrder, stopped: AbortSignal): Promise<void> {
    const { clock, db, report, settings } = this.#ctx;
    const hidden = [order.credentials?.password ?? ''];
    const log = new BuildLog({ db, clock, report, maxLines: settings.maxLogLines }, build.id, hidden);
    if (build.runs > 0)
      log.line('warn', 'The server stopped during the build. It goes on behind the last finished step.');
    const tooLong = new AbortController();
    const ended = new AbortController();
    clock.sleep(settings.buildMs, ended.signal).then(
      () =>
        tooLong.abort(
          new TorporError('timeout', `The build took longer than ${settings.buildMs / 1_000} s.`),
        ),
      () => {},
    );
    const signal = AbortSignal.any([stopped, tooLong.signal]);
    try {
      await this.#slots.run(() => this.#perform(build, order, log, signal), signal);
    } catch (thrown) {
      const isLeft = this.#stopping.signal.aborted && storedOrder(order) !== null;
      if (!isLeft) await this.#fail(build, log, signal.aborted ? signal.reason : thrown);
    } finally {
      ended.abort();
      await log.flush();
    }
  }

  async #perform(build: TemplateBuild, order: BuildOrder, log: BuildLog, signal: AbortSignal): Promise<void> {
    const { engine, clock, settings, serverId } = this.#ctx;
    const { org, id: buildId } = build;
    const sandboxes = this.#ctx.sandboxes({
      org,
      buildId,
      signal,
      output: (channel, text) => log.output(channel, text),
    });
    const ctx = { engine, clock, settings, files: this.files, bases: this.#bases, sandboxes, log, signal };
    const { from, config } = await new BuildRun(ctx, build, order).run();
    log.line('info', 'Build finished');
    // The last line is there when a client sees the end.
    await log.flush();
    signal.throwIfAborted();
    await engine.nameTemplates(org, {
      names: build.names,
      from,
      taken: 'replace',
      ...definitionOf(config),
      alsoWrite: async (tx) => {
        if (!(await setReady(tx, build, serverId, from, clock.now())))
          throw new TorporError('conflict', 'The build was ended, or its template was deleted.');
      },
    });
  }

  async #fail(build: TemplateBuild, log: BuildLog, thrown: unknown): Promise<void> {
    const { db, clock, report } = this.#ctx;
    const error = TorporError.from(thrown);
    const isInternal = error.code === 'internal';
    if (isInternal) report('a template build failed', { buildId: build.id, error });
    const reason = isInternal ? 'Something went wrong inside Torpor.' : error.message;
    log.line('error', reason);
    await log.flush();
    await db
      .transaction((tx) => setFailed(tx, build, { reason, step: log.step }, clock.now()))
      .catch((failed: unknown) => report('the end of a template build was not written', { error: failed }));
  }

  async #runUpkeep(): Promise<void> {
    const { clock, settings, report } = this.#ctx;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      await clock.sleep(settings.upkeepMs, signal).catch(() => {});
      if (signal.aborted) return;
      await this.#round().catch((error: unknown) => report('upkeep of template builds failed', { error }));
    }
  }

  async #round(): Promise<void> {
    const { db, clock, settings } = this.#ctx;
    await this.#adoptAbandoned();
    for (const build of await listNeverStarted(db, clock.now() - settings.waitingMs)) {
      const reason = 'The build was never started.';
      await db.transaction((tx) => setFailed(tx, build, { reason, step: null }, clock.now()));
    }
    await deleteFinished(db, clock.now() - settings.keepMs);
    await this.#giveUpForgotten();
    await this.files.expire();
  }

  /** The template may have been deleted through another server. */
  async #giveUpForgotten(): Promise<void> {
    if (this.#running.size === 0) return;
    const open = await listOpen(this.#ctx.db, this.#ctx.serverId);
    for (const [id, { stop }] of this.#running) if (!open.has(id)) stop.abort(templateDeleted());
  }

  async #adoptAbandoned(): Promise<void> {
    for (const build of await listAbandoned(this.#ctx.db, this.#ctx.clock.now()))
      await this.#adopt(build).catch((error: unknown) =>
        this.#ctx.report('a template build of a dead server was not taken over', {
          buildId: build.id,
          error,
        }),
      );
  }

  async #adopt(build: TemplateBuild): Promise<void> {
    const { db, clock, engine, serverId } = this.#ctx;
    const { org, id } = build;
    const order = build.order === null || build.runs >= MAX_RUNS ? undefined : parseOrder(build.order);
    const canRun = order !== undefined && (await this.#missingFiles(org, order)) === undefined;
    const isOurs = await db.transaction((tx) => takeOver(tx, build, serverId, clock.now()));
    if (!isOurs) return;
    const ours = { ...build, owner: serverId };
    await this.#ctx.killSandboxes(org, id);
    const left = (await engine.templates(org)).some(({ name }) => name === temporaryName(build));
    if (left) await engine.deleteTemplate(org, temporaryName(build));
    if (canRun && !this.#stopping.signal.aborted) return this.#launch(ours, order);
    const { message: reason } = serverStopped();
    await db.transaction((tx) => setFailed(tx, ours, { reason, step: null }, clock.now()));
  }
}

function tooMany(limit: number, which: string): TorporError {
  return new TorporError('quota_exceeded', `The organisation has ${limit} template builds ${which}.`, {
    hint: 'Wait until one of them has ended.',
  });
}

function templateDeleted(): TorporError {
  return new TorporError('conflict', 'The template was deleted.');
}

function serverStopped(): TorporError {
  return new TorporError(
    'unreachable',
    'The server stopped during the build. Build again: the finished steps are in the cache.',
  );
}
