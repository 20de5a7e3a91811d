/** Names that both ends of the wire must spell alike. */
export { serviceTag } from '@torpor/protocol';

/** Where an agent listens unless it is told otherwise; clients of E2B's wire have this number built in. */
export const AGENT_PORT = 49983;

/** The features of E2B's own program that an agent offers; clients switch theirs on by this version. */
export const ENVD_VERSION = '0.6.4';

/** What a client of the sandbox proves itself with. */
export const ACCESS_TOKEN_HEADER = 'x-access-token';

/** What the server proves itself with when it sets up an agent. It changes with every start. */
export const CREDENTIAL_HEADER = 'torpor-credential';

/** On a refusal with 401 whose cause is the user that was asked for. All others are about the token. */
export const UNKNOWN_USER_HEADER = 'torpor-unknown-user';

/** Seconds between two signs of life on a quiet stream. */
export const KEEPALIVE_HEADER = 'keepalive-ping-interval';

/** Headers that begin so carry the metadata of an uploaded file. */
export const METADATA_HEADER_PREFIX = 'x-metadata-';

/** The variable that marks every process of a sandbox, so that a runtime finds the ones left over. */
export const SANDBOX_VARIABLE = 'TORPOR_SANDBOX';

/** Headers for a call on behalf of one of the sandbox's users. */
export function asUser(name: string): { authorization: string } {
  return { authorization: `Basic ${Buffer.from(`${name}:`).toString('base64')}` };
}
