/** What every part of the E2B runtime works with. */
import type { Clock, Report } from '@torpor/engine';
import type { Capabilities } from '@torpor/protocol';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { InstanceRecords } from './instance/instance-records.ts';
import type { Instances } from './instance/instances.ts';
import type { Relays } from './instance/relays.ts';
import type { Provider } from './provider/provider.ts';
import type { Snapshots } from './provider/snapshots.ts';

export interface RuntimeContext {
  readonly provider: Provider;
  readonly records: InstanceRecords;
  readonly instances: Instances;
  readonly relays: Relays;
  readonly snapshots: Snapshots;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  readonly report: Report;
  readonly capabilities: Capabilities;
  /** The provider's template that is used for `base`. */
  readonly template: string;
}
