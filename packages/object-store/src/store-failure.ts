/**
 * What can be wrong with an object store, each with its own error. `details` has `fault`, `store`, `object` and for S3
 * `bucket` and `key`.
 *
 * | fault | code | what happened |
 * |---|---|---|
 * | `hanging` | `timeout` | no byte of an answer came in time |
 * | `slow` | `timeout` | bytes came, but too few |
 * | `refusing` | `forbidden` | the credentials lack the right, or are unknown |
 * | `no_credentials` | `forbidden` | there are no credentials |
 * | `clock_skew` | `forbidden` | the clocks of this machine and of the store differ too much |
 * | `no_bucket` | `not_found` | the bucket or directory does not exist |
 * | `failing` | `unreachable` | the store answered with an error of its own |
 * | `unreachable` | `unreachable` | no connection |
 * | `cut` | `unreachable` | the connection ended in the middle of an object |
 * | `full` | `storage_full` | the store has no room left |
 * | `half_written` | `checkpoint_corrupt` | the object has fewer or more bytes than were stored |
 * | `missing` | `checkpoint_missing` | there is no such object |
 * | `lying` | `checkpoint_corrupt` | the object has other bytes than were stored |
 * | `wrong_key` | `checkpoint_unreadable` | the object was encrypted with a data key that this server does not have |
 */
import { type ErrorCode, TorporError } from '@torpor/protocol';

const FAULTS = {
  hanging: ['timeout', 'did not answer in time'],
  slow: ['timeout', 'answered too slowly'],
  refusing: ['forbidden', 'refused the request: the credentials are unknown or lack a right'],
  no_credentials: ['forbidden', 'cannot be asked without credentials'],
  clock_skew: ['forbidden', 'refused the request, because its clock and the clock of this machine differ'],
  no_bucket: ['not_found', 'has no such bucket or directory'],
  failing: ['unreachable', 'answered with an error'],
  unreachable: ['unreachable', 'could not be reached'],
  cut: ['unreachable', 'ended the connection in the middle of an object'],
  full: ['storage_full', 'has no room left'],
  half_written: ['checkpoint_corrupt', 'has an object of another size than was stored'],
  missing: ['checkpoint_missing', 'does not have the object'],
  lying: ['checkpoint_corrupt', 'has an object with other bytes than were stored'],
  wrong_key: ['checkpoint_unreadable', 'has an object that none of the data keys of this server can decrypt'],
} as const satisfies Readonly<Record<string, readonly [ErrorCode, string]>>;

export type StoreFault = keyof typeof FAULTS;

const HINTS: Partial<Record<StoreFault, string>> = {
  refusing: 'The credentials need to list, read, write and delete below the prefix of the store.',
  no_credentials:
    'Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source that AWS programs know.',
  clock_skew: 'Set the clock of this machine, for example with chrony or systemd-timesyncd.',
  no_bucket: 'Check the address in --store, AWS_ENDPOINT_URL and AWS_REGION. Torpor does not make buckets.',
  wrong_key: 'Put the data key of this store into the key file (docs/store.md). Nothing was changed.',
};

/** The object or store that a call is about. */
export interface StorePlace {
  readonly store: string;
  readonly bucket?: string;
  /** As the store names it, with the prefix. */
  readonly key?: string;
}

/** `why` adds what the store said. */
export function storeFailure(
  fault: StoreFault,
  place: StorePlace,
  { why, cause }: { readonly why?: string | undefined; readonly cause?: unknown } = {},
): TorporError {
  const [code, what] = FAULTS[fault];
  const subject = place.key === undefined ? '' : ` (${place.key})`;
  const hint = HINTS[fault];
  return new TorporError(code, `The store ${place.store} ${what}${subject}${why ? `: ${why}` : ''}.`, {
    ...(hint === undefined ? {} : { hint }),
    details: { fault, ...place },
    cause,
  });
}

/** The fault of an error that `storeFailure` made. */
export function faultOf(thrown: unknown): StoreFault | undefined {
  if (!(thrown instanceof TorporError)) return undefined;
  const fault = thrown.toBody().details?.['fault'];
  return typeof fault === 'string' && fault in FAULTS ? (fault as StoreFault) : undefined;
}
