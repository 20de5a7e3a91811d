/** The template builds of the server, with the engine's sandboxes and the images of registries. */
import { randomUUID } from 'node:crypto';
import type { Clock, Database, Engine, Ids, Report } from '@torpor/engine';
import type { Images } from '@torpor/images';
import { DEFAULT_ORG } from '@torpor/protocol';
import { type FindRemoteUpload, type TemplateBuildSettings, TemplateBuilds } from '@torpor/template-builds';
import type { ConnectToAgent } from '../cluster/follow-sandboxes.ts';
import { killSandboxesOf, stepSandboxes } from './engine-step-sandboxes.ts';

export interface OpenTemplateBuildsContext {
  readonly engine: Engine;
  readonly connect: ConnectToAgent;
  readonly elsewhere?: FindRemoteUpload | undefined;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly images: Images;
  readonly report: Report;
  readonly serverId: string;
}

export function openTemplateBuilds(
  ctx: OpenTemplateBuildsContext,
  settings: TemplateBuildSettings,
  directory: string,
): TemplateBuilds {
  const { engine, connect, elsewhere, db, clock, ids, images, report, serverId } = ctx;
  return new TemplateBuilds({
    engine,
    db,
    clock,
    report,
    serverId,
    settings,
    directory,
    elsewhere,
    uuid: randomUUID,
    // The credentials of the machine are its operator's, and so is the default organisation.
    image: (org, reference, credentials) =>
      images.inRegistry(reference, { credentials, mayUseServerCredentials: org === DEFAULT_ORG }),
    sandboxes: (options) =>
      stepSandboxes({ engine, connect, clock, ids, lifetimeMs: settings.buildMs }, options),
    killSandboxes: (org, buildId) => killSandboxesOf(engine, org, buildId),
  });
}
