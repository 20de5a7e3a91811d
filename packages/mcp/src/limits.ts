/** What the model behind a server may do. The person who starts the server decides; no tool can widen it. */
import type { Network } from '@torpor/sdk';

export interface Limits {
  /** The templates of new sandboxes; the first is the default. Empty: any template. */
  readonly templates: readonly string[];
  /** The network policy of new sandboxes. Undefined: the server's default. */
  readonly network: Network | undefined;
  /** Only tools that change nothing. */
  readonly readOnly: boolean;
  /** How many sandboxes with this label may exist, running or paused. Undefined: as many as the key's quota allows. */
  readonly maxSandboxes: number | undefined;
  /** New sandboxes get this label, and only sandboxes with this label are visible. */
  readonly label: string;
  /** All sandboxes of the key's organisation are visible. */
  readonly allSandboxes: boolean;
  /** The organisation, where one process serves several: creates of one label wait only for those of their own. */
  readonly org?: string | undefined;
}

/** The key of the label in a sandbox's metadata. */
export const LABEL_KEY = 'mcp';
