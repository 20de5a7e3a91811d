/** What E2B calls a template: the name of a template, or the id of a kept checkpoint. */
import type { Engine } from '@torpor/engine';
import {
  type CheckpointId,
  isId,
  nameSchema,
  orgIdSchema,
  TorporError,
  templateNameSchema,
} from '@torpor/protocol';
import { notFound } from './failures.ts';

/** `team/name:tag`. The team is the organisation. */
const FORM = /^(?:([^/:]+)\/)?([^/:]+)(?::([^/:]+))?$/;
/** E2B's tag of a version that was built without a tag. */
export const DEFAULT_TAG = 'default';

export type TemplateReference =
  | { readonly is: 'checkpoint'; readonly id: CheckpointId }
  /** A version with a tag is a template of its own, with the tag in its name. */
  | { readonly is: 'template'; readonly name: string }
  /** A template of another organisation, `organisation/name`. It can be used if it is published. */
  | { readonly is: 'published'; readonly name: string };

/** Throws `not_found` for a text that cannot be the name of a template or snapshot. */
export function parseTemplateReference(text: string, org: string): TemplateReference {
  const [, team, name = '', tag = DEFAULT_TAG] = FORM.exec(text) ?? [];
  const isOurs = team === undefined || team === org;
  if (isOurs && tag === DEFAULT_TAG && isId('ckpt', name)) return { is: 'checkpoint', id: name };
  const full = withTag(name, tag);
  if (templateNameSchema.safeParse(full).success) {
    if (isOurs) return { is: 'template', name: full };
    if (orgIdSchema.safeParse(team).success) return { is: 'published', name: `${team}/${full}` };
  }
  throw notFound(`The template "${text.slice(0, 100)}"`);
}

export function withTag(name: string, tag: string): string {
  return tag === DEFAULT_TAG ? name : `${name}:${tag}`;
}

export function splitTag(full: string): { readonly name: string; readonly tag: string } {
  const [name = '', tag = DEFAULT_TAG] = full.split(':');
  return { name, tag };
}

/** What a create starts from. A checkpoint must be kept: E2B's clients have deleted the others. */
export async function createSource(
  engine: Engine,
  org: string,
  templateId: string,
): Promise<{ readonly template: string } | { readonly from: CheckpointId }> {
  const named = parseTemplateReference(templateId, org);
  if (named.is !== 'checkpoint') return { template: named.name };
  if ((await engine.keptCheckpoint(org, named.id)) === undefined) throw notFound(`The snapshot ${named.id}`);
  return { from: named.id };
}

/** The name for a new snapshot, with its tag. */
export function parseSnapshotName(text: string, org: string): string {
  const { template, tag } = parsedName(text, org);
  return withTag(template, tag ?? DEFAULT_TAG);
}

/** The names that the result of a build gets. As for E2B, they are written in small letters. */
export function buildNamesOf(text: string, given: readonly string[], org: string) {
  const { template, tag } = parsedName(text.trim().toLowerCase(), org);
  const tags = [...new Set([...(tag === undefined ? [] : [tag]), ...given.map(parseTag)])];
  if (tags.length === 0) tags.push(DEFAULT_TAG);
  return { template, tags, names: tags.map((one) => withTag(template, one)) };
}

export function parseTag(text: string): string {
  const tag = text.trim().toLowerCase();
  if (templateNameSchema.safeParse(`name:${tag}`).success) return tag;
  throw new TorporError('invalid_request', `"${text.slice(0, 100)}" cannot be a tag.`, {
    hint: 'Use small letters, digits, dot, dash and underscore.',
  });
}

function parsedName(text: string, org: string): { template: string; tag: string | undefined } {
  const [, team = org, template = '', tag] = FORM.exec(text) ?? [];
  const isName = !template.startsWith('ckpt_') && nameSchema.safeParse(template).success;
  if (team === org && isName) return { template, tag: tag === undefined ? undefined : parseTag(tag) };
  throw new TorporError('invalid_request', `"${text.slice(0, 100)}" cannot be the name of a template.`, {
    hint: 'Use letters, digits, dot, dash and underscore; a team must be your organisation.',
  });
}
