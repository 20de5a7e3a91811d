/** Converts a create request of E2B's API, first or second version, into a native one. */
import { type CreateRequest, requestHostSchema } from '@torpor/protocol';
import { z } from 'zod';
import { egressSchema, networkOf, refuseUnsupported } from './network-rules.ts';

/** The default timeouts of E2B's API, by version. */
export const DEFAULT_SECONDS = { v1: 15, v2: 300 } as const;
export type ApiVersion = keyof typeof DEFAULT_SECONDS;

/** Zero is allowed: such a sandbox ends at once. */
export const secondsSchema = z
  .number()
  .int()
  .min(0)
  .max(30 * 24 * 3_600);

const unsupportedFields = {
  iam: z.unknown().optional(),
  volumeMounts: z.unknown().optional(),
};
const unsupportedNetworkFields = {
  httpsPorts: z.unknown().optional(),
};

export const createSchema = z.object({
  templateID: z.string().min(1).max(200),
  timeout: secondsSchema.nullish(),
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.object({ enabled: z.boolean().nullish() }).nullish(),
  allow_internet_access: z.boolean().nullish(),
  network: egressSchema
    .extend({
      allowPublicTraffic: z.boolean().nullish(),
      maskRequestHost: z.union([requestHostSchema, z.literal('')]).nullish(),
      ...unsupportedNetworkFields,
    })
    .nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
  envVars: z.record(z.string(), z.string()).nullish(),
  /** The package starts the gateway itself, by a command in the sandbox; the server only has the template. */
  mcp: z.record(z.string(), z.unknown()).nullish(),
  ...unsupportedFields,
});
export type E2bCreate = z.infer<typeof createSchema>;

/** Everything but the template. With E2B an idle sandbox runs until its timeout, so `onIdle` is `keep`. */
export function createRequestOf(body: E2bCreate, version: ApiVersion): CreateRequest {
  refuseUnsupported(body, Object.keys(unsupportedFields));
  const { network } = body;
  if (network) refuseUnsupported(network, Object.keys(unsupportedNetworkFields));
  const memory = body.autoPauseMemory;
  return {
    timeoutSeconds: Math.max(1, body.timeout ?? DEFAULT_SECONDS[version]),
    onTimeout: body.autoPause === true ? 'pause' : 'kill',
    ...(memory === undefined || memory === null ? {} : { pauseMode: memory ? 'memory' : 'files' }),
    onIdle: 'keep',
    autoResume: body.autoResume?.enabled === true,
    preview: network?.allowPublicTraffic === false ? 'private' : 'public',
    ...(network?.maskRequestHost ? { requestHost: network.maskRequestHost } : {}),
    network: networkOf({
      ...network,
      allow_internet_access: network?.allow_internet_access ?? body.allow_internet_access,
    }),
    ...(body.metadata ? { metadata: body.metadata } : {}),
    ...(body.envVars ? { env: body.envVars } : {}),
  };
}
