/** Names that both ends of the wire must spell alike. */
export { serviceTag } from '@torpor/protocol';

/** The agent's default port, which E2B's clients assume. */
export const AGENT_PORT = 49983;

/** The version of E2B's agent whose features this agent offers. Clients enable features by this version. */
export const ENVD_VERSION = '0.6.4';

/** Carries the access token of a client of the sandbox. */
export const ACCESS_TOKEN_HEADER = 'x-access-token';

/** Carries the credential with which the server sets up an agent. It changes with every start. */
export const CREDENTIAL_HEADER = 'torpor-credential';

/** Set on an answer 401 that is about an unknown user. Every other 401 is about the token. */
export const UNKNOWN_USER_HEADER = 'torpor-unknown-user';

/** Seconds between two keepalive messages on a quiet stream. */
export const KEEPALIVE_HEADER = 'keepalive-ping-interval';

/** Headers with this prefix carry the metadata of an uploaded file. */
export const METADATA_HEADER_PREFIX = 'x-metadata-';

/** The variable that every process of a sandbox has, so that a runtime finds left-over processes. */
export const SANDBOX_VARIABLE = 'TORPOR_SANDBOX';

/** Headers of a call on behalf of one of the sandbox's users. */
export function asUser(name: string): { authorization: string } {
  return { authorization: `Basic ${Buffer.from(`${name}:`).toString('base64')}` };
}
