/** Delays, limits and budgets of the store outside this machine (R113). A new setting is one line here. */
import {
  byteCount,
  count,
  defaultsOf,
  duration,
  type SettingOrder,
  type SettingValues,
} from '@torpor/protocol';

export const STORE_SETTINGS = {
  callMs: duration(
    60_000,
    'How long one request to the store may take, or the upload of one piece of 8 MiB.',
  ),
  stallMs: duration(30_000, 'A download from the store on which no bytes move for this long is ended.'),
  minBytesPerSecond: byteCount(
    16 * 1024,
    'A download from the store that is slower than this for `callMs` is ended.',
    { max: 1024 ** 3 },
  ),
  uploads: count(2, 'Checkpoints that are uploaded to the store at once.', { max: 64 }),
  uploadBytesPerSecond: byteCount(
    0,
    'Limits the bandwidth of all uploads to the store together. 0: no limit.',
    { min: 0 },
  ),
  replicateMs: duration(
    3_600_000,
    'How long the upload of one checkpoint may take before it is given up and begun again.',
  ),
  everyMs: duration(
    5_000,
    'How often the server looks for checkpoints that are not replicated and for objects that nothing needs.',
    { min: 10 },
  ),
  cacheBytes: byteCount(
    0,
    'When the checkpoints on the disk of this machine take more than this, or than `cachePercent` if that is less, those that were not used for longest are evicted, if the store has them. 0: only the share counts.',
    { min: 0, max: 1024 ** 5 },
  ),
  cachePercent: count(70, 'The same as a share of the disk. 0: only the bytes count.', { min: 0, max: 100 }),
  retryMs: duration(
    5_000,
    'How long the server waits after the upload of a checkpoint failed; after each further failure twice as long, at most five minutes.',
  ),
} as const;

export type StoreSettings = SettingValues<typeof STORE_SETTINGS>;
export const DEFAULT_STORE_SETTINGS: StoreSettings = defaultsOf(STORE_SETTINGS);

export const STORE_SETTING_ORDER: readonly SettingOrder<typeof STORE_SETTINGS>[] = [
  ['stallMs', '<=', 'callMs'],
  ['callMs', '<=', 'replicateMs'],
];
