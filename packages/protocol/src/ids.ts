/**
 * Ids: a kind, an underscore, twenty characters of `[a-z0-9]`.
 * The part after `sbx_` is also part of a host label, so it never contains a dash.
 */
import { z } from 'zod';

const KINDS = ['sbx', 'ckpt', 'job', 'op', 'evt', 'ses', 'turn', 'req', 'hook'] as const;
export type IdKind = (typeof KINDS)[number];

/** An id of one kind. The compiler refuses the id of a checkpoint where the id of a sandbox is expected. */
export type Id<K extends IdKind> = `${K}_${string}`;
export type SandboxId = Id<'sbx'>;
export type CheckpointId = Id<'ckpt'>;
export type OperationId = Id<'op'>;
export type EventId = Id<'evt'>;
export type JobId = Id<'job'>;
export type SessionId = Id<'ses'>;
export type TurnId = Id<'turn'>;
export type RequestId = Id<'req'>;
export type WebhookId = Id<'hook'>;

const LENGTH = 20;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';
/** The largest multiple of the alphabet's size below 256. Larger bytes would favour the first letters, and are skipped. */
const UNBIASED = 256 - (256 % ALPHABET.length);

export function isId<K extends IdKind>(kind: K, text: string): text is Id<K> {
  return text.startsWith(`${kind}_`) && /^[a-z0-9]{20}$/.test(text.slice(kind.length + 1));
}

/** Makes an id from a source of random bytes, which a test can replace. */
export function makeId<K extends IdKind>(kind: K, randomBytes: (n: number) => Uint8Array): Id<K> {
  let text = '';
  while (text.length < LENGTH) {
    for (const byte of randomBytes(LENGTH)) {
      if (byte < UNBIASED && text.length < LENGTH) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return `${kind}_${text}`;
}

/** Accepts `sbx_abc…` and the bare `abc…` that host names and E2B's calls use. */
export function parseSandboxId(text: string): SandboxId | undefined {
  const full = text.startsWith('sbx_') ? text : `sbx_${text}`;
  return isId('sbx', full) ? full : undefined;
}

/** The part of a sandbox id that host names and E2B's calls use. */
export function bareSandboxId(id: SandboxId): string {
  return id.slice('sbx_'.length);
}

export function idSchema<K extends IdKind>(kind: K) {
  return z
    .templateLiteral([`${kind}_`, z.string().regex(/^[a-z0-9]{20}$/)])
    .meta({ description: `An id that starts with ${kind}_` }) as unknown as z.ZodType<Id<K>>;
}
