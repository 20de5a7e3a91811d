/** What the routes work with. */
import type { Builds } from '@torpor/builds';
import type { Clock, Database, Engine, Ids } from '@torpor/engine';
import type { Gateway } from '@torpor/gateway';
import type { SettingView } from '@torpor/protocol';
import type { Sessions } from '@torpor/sessions';
import type { HostNames } from './http/host-names.ts';
import type { KeyWatch } from './http/key-watch.ts';
import type { Replays } from './http/replays.ts';
import type { StreamLimit } from './http/stream-limit.ts';
import type { Log } from './observe/log.ts';
import type { Metrics } from './observe/metrics.ts';
import type { ServerSettings } from './settings.ts';
import type { Uploads } from './uploads.ts';

/** What a server is put together from. */
export interface AppParts {
  readonly engine: Engine;
  readonly sessions: Sessions;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly randomBytes: (n: number) => Uint8Array;
  readonly uploads: Uploads;
  readonly settings: ServerSettings;
  /** Those of all packages, for whoever asks what the server runs with. */
  readonly settingsList: readonly SettingView[];
  readonly log: Log;
  readonly metrics: Metrics;
  readonly version: string;
  readonly hostNames: HostNames;
  /** What serves previews; without it there are none. */
  readonly gateway?: Gateway;
  /** What turns goals into previews; without it there are no routes for that. */
  readonly builds?: Builds;
  /** Present: the port speaks HTTPS and HTTP/2. */
  readonly tls?: { readonly key: string; readonly cert: string };
}

export interface RouteParts extends AppParts {
  readonly replays: Replays;
  readonly keyWatch: KeyWatch;
  readonly streamLimit: StreamLimit;
  /** Fires when the server stops: streams end at once, whatever else is under way may finish. */
  readonly stopping: AbortSignal;
  /** Fires when a stop has waited long enough. */
  readonly leaving: AbortSignal;
}
