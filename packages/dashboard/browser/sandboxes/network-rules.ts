/** What a sandbox may reach: as people read it, and as a form has it. */
import type { Network, SecretUse } from '@torpor/sdk';
import { wordsIn } from '../ui/form-values.ts';

export type NetworkMode = NonNullable<Network['mode']>;

export interface NetworkDraft {
  readonly mode: NetworkMode;
  readonly allow: string;
  readonly deny: string;
  /** Names of secrets. */
  readonly secrets: string;
}

export const EMPTY_NETWORK: NetworkDraft = { mode: 'internet', allow: '', deny: '', secrets: '' };

/** Without a mode an allow list means that nothing else is allowed. */
function modeOf({ mode, allow = [] }: Network): NetworkMode {
  return mode ?? (allow.length > 0 ? 'none' : 'internet');
}

export function networkDraftOf(network: Network): NetworkDraft {
  const { allow = [], deny = [], secrets = [] } = network;
  return {
    mode: modeOf(network),
    allow: allow.join(', '),
    deny: deny.join(', '),
    secrets: secrets.map(nameOfUse).join(', '),
  };
}

/** A secret that the sandbox has already keeps the rules that narrow it. */
export function networkOf({ mode, allow, deny, secrets }: NetworkDraft, former: Network = {}): Network {
  const uses = wordsIn(secrets).map(
    (name) => (former.secrets ?? []).find((use) => nameOfUse(use) === name) ?? name,
  );
  return {
    mode,
    // With `internet` an allow list has no effect.
    ...(mode === 'none' && wordsIn(allow).length > 0 ? { allow: wordsIn(allow) } : {}),
    ...(wordsIn(deny).length > 0 ? { deny: wordsIn(deny) } : {}),
    ...(uses.length > 0 ? { secrets: uses } : {}),
  };
}

const MODES: Readonly<Record<NetworkMode, string>> = {
  internet: 'public internet',
  none: 'nothing but what is allowed',
};

/** One line for each rule. */
export function networkLines(network: Network): string[] {
  const { allow = [], deny = [], secrets = [] } = network;
  const mode = modeOf(network);
  return [
    MODES[mode],
    ...(mode === 'none' && allow.length > 0 ? [`allowed: ${allow.join(', ')}`] : []),
    ...(deny.length > 0 ? [`denied: ${deny.join(', ')}`] : []),
    ...(secrets.length > 0 ? [`secrets: ${secrets.map(useText).join(', ')}`] : []),
  ];
}

function nameOfUse(use: SecretUse): string {
  return typeof use === 'string' ? use : use.name;
}

function useText(use: SecretUse): string {
  if (typeof use === 'string') return use;
  const rules = [use.host, use.methods?.join(' '), use.path].filter((rule) => rule !== undefined);
  return rules.length === 0 ? use.name : `${use.name} (${rules.join(', ')})`;
}
