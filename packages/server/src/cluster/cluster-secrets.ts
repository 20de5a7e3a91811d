/**
 * The secret by which nodes know each other, from TORPOR_CLUSTER_SECRET: one, or several with commas between them. The first
 * signs and encrypts, all are accepted. So a secret is replaced without a stop: add the new one behind the old one on every
 * node, then swap them on every node, then remove the old one.
 */
import { TorporError } from '@torpor/protocol';

/** The shortest secret: 32 characters, as `openssl rand -hex 32` makes twice as many. */
const SHORTEST = 32;

export function parseClusterSecrets(text: string): readonly Uint8Array[] {
  const given = text.split(',').map((one) => one.trim());
  if (given.some((one) => one.length < SHORTEST)) {
    throw new TorporError(
      'invalid_request',
      `TORPOR_CLUSTER_SECRET: too short, it needs ${SHORTEST} characters (openssl rand -hex 32).`,
      { hint: 'While a secret is replaced, give both with a comma between them: the first one signs.' },
    );
  }
  return given.map((one) => Buffer.from(one));
}
