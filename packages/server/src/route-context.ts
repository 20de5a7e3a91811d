/** The dependencies of the routes. */
import type { Builds } from '@torpor/builds';
import type { Clock, Database, Engine, Ids } from '@torpor/engine';
import type { Gateway } from '@torpor/gateway';
import type { Images } from '@torpor/images';
import type { SettingView } from '@torpor/protocol';
import type { Secrets } from '@torpor/secrets';
import type { Sessions } from '@torpor/sessions';
import type { TemplateBuilds } from '@torpor/template-builds';
import type { Webhooks } from '@torpor/webhooks';
import type { HostNames } from './http/host-names.ts';
import type { KeyWatch } from './http/key-watch.ts';
import type { Replays } from './http/replays.ts';
import type { StreamLimit } from './http/stream-limit.ts';
import type { Log } from './observe/log.ts';
import type { HostInspection } from './observe/machine-reports.ts';
import type { Metrics } from './observe/metrics.ts';
import type { ServerTracing } from './observe/tracing.ts';
import type { PageSessions } from './page/page-sessions.ts';
import type { PageSource } from './page/page-source.ts';
import type { ServerSettings } from './settings.ts';
import type { Uploads } from './uploads.ts';

/** The dependencies that the application is built from. */
export interface AppContext {
  readonly engine: Engine;
  readonly sessions: Sessions;
  readonly webhooks: Webhooks;
  readonly secrets: Secrets;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly randomBytes: (n: number) => Uint8Array;
  readonly uploads: Uploads;
  readonly images: Images;
  readonly templateBuilds: TemplateBuilds;
  /** Signs links for uploads without a key, and how long such a link is valid. */
  readonly uploadSecret: Uint8Array;
  readonly uploadLinkMs: number;
  readonly settings: ServerSettings;
  /** The settings of all packages, for `GET /v1/admin/settings`. */
  readonly settingsList: readonly SettingView[];
  readonly log: Log;
  readonly metrics: Metrics;
  readonly tracing: ServerTracing;
  readonly version: string;
  readonly hostNames: HostNames;
  readonly pageSessions: PageSessions;
  /** The files of the page for people. Undefined: the server has no page. */
  readonly page?: PageSource;
  /** Serves previews. Undefined: the server has no previews. */
  readonly gateway?: Gateway;
  /** Undefined: the server has no builds API. */
  readonly builds?: Builds;
  /** Makes a new root for the template `base` in the background. Undefined: the runtime has none. */
  readonly rebuildBase?: () => void;
  /** Checks of the machine. Undefined: the runtime needs nothing from it. */
  readonly host?: HostInspection;
  /** With a certificate the port speaks HTTPS and HTTP/2. */
  readonly tls?: { readonly key: string; readonly cert: string };
}

export interface RouteContext extends AppContext {
  readonly replays: Replays;
  readonly keyWatch: KeyWatch;
  readonly streamLimit: StreamLimit;
  /** Fires when the server begins to stop: streams end at once, other requests may finish. */
  readonly stopping: AbortSignal;
  /** Fires when the stop has waited for `settings.stopMs`: remaining requests are interrupted. */
  readonly forcedStop: AbortSignal;
}
