/** The sandbox that a request to one of the APIs is about, from its path. */
import { parseSandboxId, type SandboxId } from '@torpor/protocol';

/** Torpor's paths, and E2B's, which have other version prefixes. */
const PATH = /^\/(?:v1\/(?:admin\/)?|v2\/)?sandboxes\/([^/?#]+)/;

export function apiSandboxOf(target: string): SandboxId | undefined {
  const [, text] = PATH.exec(target) ?? [];
  return text === undefined ? undefined : parseSandboxId(decoded(text));
}

/** The router decodes paths too. */
function decoded(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** E2B's clients read other errors than Torpor's. */
export function isE2bPath(target: string): boolean {
  return /^\/(?:v2\/)?sandboxes\b/.test(target);
}
