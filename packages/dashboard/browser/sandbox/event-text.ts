/** What an event of the ledger means, in words. */
import type { EventView } from '@torpor/sdk';
import { bytes, clockTime, duration } from '../ui/units.ts';

/** A failure, something to look at, or an ordinary event. */
export type Weight = 'bad' | 'warn' | 'plain';

export function weightOf({ type }: EventView): Weight {
  if (/_failed$|\.failed$|sandbox\.lost$/.test(type)) return 'bad';
  if (/refused$|expiring$|job\.lost$|recovered$|repaired$|taken_over$|checkpoint\.health$/.test(type))
    return 'warn';
  return 'plain';
}

/** Empty when the title says all. A field that is missing or of another kind is left out. */
export function eventText({ data }: EventView): string {
  const text = (name: string) => (typeof data[name] === 'string' ? (data[name] as string) : undefined);
  const number = (name: string) => (typeof data[name] === 'number' ? (data[name] as number) : undefined);
  const error = data['error'] as { readonly message?: string; readonly code?: string } | undefined;
  const lost =
    Array.isArray(data['lost']) && data['lost'].length > 0 ? `lost ${data['lost'].join(', ')}` : undefined;
  const parts = data['parts'] as { readonly memory?: boolean } | undefined;
  const source = data['source'] as { readonly kind?: string } | undefined;
  const took = number('durationMs');
  const size = number('bytes');
  const until = number('endsAt') ?? number('deletesAt') ?? number('expiresAt');
  const said = [
    text('name'),
    text('template') && `from ${text('template')}`,
    source?.kind && `from ${source.kind}`,
    parts && (parts.memory ? 'memory and files' : 'files'),
    // A message says more than the code of its reason.
    text('message') === undefined && reasonOf(data),
    text('message') ?? text('detail') ?? text('did') ?? text('found'),
    text('destination'),
    error && `${error.code}: ${error.message}`,
    number('exitCode') !== undefined && `exit ${number('exitCode')}`,
    lost,
    size && bytes(size),
    took !== undefined && `in\u00a0${duration(took)}`,
    until && `until ${clockTime(until)}`,
  ];
  return [...new Set(said.filter((part) => typeof part === 'string' && part !== ''))].join(' · ');
}

/** A request is the usual reason, and the title of a snapshot names it. */
function reasonOf({ reason, parts }: EventView['data']): string | undefined {
  const isTold = reason === 'request' || (reason === 'snapshot' && parts !== undefined);
  return typeof reason === 'string' && !isTold ? reason : undefined;
}

const TITLES: Readonly<Record<string, string>> = {
  'sandbox.created': 'Creation began',
  'sandbox.started': 'Started',
  'sandbox.pausing': 'Pause began',
  'sandbox.paused': 'Paused',
  'sandbox.pause_failed': 'Pause failed, it runs on',
  'sandbox.resuming': 'Wake began',
  'sandbox.resumed': 'Awake',
  'sandbox.resume_failed': 'Wake failed',
  'sandbox.recovered': 'Files recovered',
  'sandbox.killing': 'Kill began',
  'sandbox.killed': 'Killed',
  'sandbox.failed': 'Never ran',
  'sandbox.lost': 'Lost',
  'sandbox.expiring': 'Will be deleted',
  'lifetime.set': 'Lifetime set',
  'network.refused': 'Connection refused',
  'checkpoint.sealed': 'Checkpoint sealed',
  'checkpoint.deleted': 'Checkpoint deleted',
  'checkpoint.health': 'Checkpoint health',
  'reconcile.repaired': 'Repaired',
};

/** `job.restarted` is `Job restarted`. */
export function eventTitle({ type, data }: EventView): string {
  if (type === 'sandbox.paused' && data['reason'] === 'snapshot') return 'Snapshot taken';
  const plain = type.replace(/[._]/g, ' ');
  return TITLES[type] ?? plain.charAt(0).toUpperCase() + plain.slice(1);
}
