/** Converts network rules between E2B's API and the native one. */
import {
  headerTextSchema,
  type Network,
  secretHeaderSchema,
  secretHostSchema,
  TorporError,
} from '@torpor/protocol';
import type { RuleSecret, Secrets } from '@torpor/secrets';
import { z } from 'zod';

const listSchema = z.array(z.string().min(1).max(253)).max(256);
/** The rules that match all traffic. */
const EVERYTHING = ['0.0.0.0/0', '::/0'];

const unsupportedFields = { egressProxy: z.unknown().optional() };

/** Names as keys are normalised to lower case, as E2B does. */
const rulesSchema = z.record(
  secretHostSchema,
  z.array(
    z.object({
      transform: z
        .object({ headers: z.record(secretHeaderSchema, headerTextSchema.min(1).max(8_192)).nullish() })
        .nullish(),
    }),
  ),
);

export const egressSchema = z.object({
  allowOut: listSchema.nullish(),
  denyOut: listSchema.nullish(),
  allow_internet_access: z.boolean().nullish(),
  rules: rulesSchema.nullish(),
  ...unsupportedFields,
});
export type Egress = z.infer<typeof egressSchema>;

/**
 * With E2B `allowOut` wins over `denyOut`, and all other traffic passes. Here a denial wins. Both mean the same when
 * everything is denied or when nothing is allowed by name. A partial denial with exceptions is refused.
 */
export function networkOf(egress: Egress): Network {
  refuseUnsupported(egress, Object.keys(unsupportedFields));
  const allow = egress.allowOut ?? [];
  const deny = egress.denyOut ?? [];
  if (allow.some((rule) => EVERYTHING.includes(rule))) return {};
  const isClosed = egress.allow_internet_access === false || deny.some((rule) => EVERYTHING.includes(rule));
  if (isClosed) return { mode: 'none', ...(allow.length === 0 ? {} : { allow }) };
  if (deny.length === 0) return {};
  if (allow.length > 0) {
    throw new TorporError(
      'capability_unsupported',
      'allowOut together with a denyOut that does not deny everything is not supported yet. Deny 0.0.0.0/0 instead.',
    );
  }
  return { mode: 'internet', deny };
}

/** E2B replaces these by values of its own secrets and tokens. */
const PLACEHOLDER = /\$\{e2b\.[^}]*\}/;

/** The headers of `rules`, which become secrets without names: the sandbox uses them and never sees them. */
export function ruleSecretsOf({ rules }: Egress): RuleSecret[] {
  return Object.entries(rules ?? {}).flatMap(([host, list]) =>
    list.flatMap(({ transform }) =>
      Object.entries(transform?.headers ?? {}).map(([header, value]) => {
        refusePlaceholder(value);
        return { host: host.toLowerCase(), header, value: value.trim() };
      }),
    ),
  );
}

function refusePlaceholder(value: string): void {
  const [placeholder] = PLACEHOLDER.exec(value) ?? [];
  if (placeholder === undefined) return;
  throw new TorporError('capability_unsupported', `The placeholder ${placeholder} is not supported yet.`, {
    hint: 'Put the value itself into the rule, where the sandbox does not see it, or use torpor secret.',
  });
}

/** Stores the rules and names them in the network. */
export async function withRules(
  secrets: Pick<Secrets, 'putRules'>,
  org: string,
  network: Network,
  rules: readonly RuleSecret[],
): Promise<Network> {
  return rules.length === 0 ? network : { ...network, secrets: await secrets.putRules(org, rules) };
}

/** The opposite direction, for E2B's responses. */
export function egressOf({ mode, allow = [], deny = [] }: Network) {
  const isClosed = mode === 'none' || (mode === undefined && allow.length > 0);
  return { allowOut: [...allow], denyOut: isClosed ? ['0.0.0.0/0', ...deny] : [...deny] };
}

export function refuseUnsupported(given: object, names: readonly string[]): void {
  for (const name of names) {
    const value = (given as Readonly<Record<string, unknown>>)[name];
    const isAbsent = value === undefined || value === null || value === '';
    const isEmpty = typeof value === 'object' && value !== null && Object.keys(value).length === 0;
    if (isAbsent || isEmpty) continue;
    throw new TorporError('capability_unsupported', `"${name}" is not supported yet.`, {
      hint: 'docs/coming-from-e2b.md lists what is supported.',
    });
  }
}
