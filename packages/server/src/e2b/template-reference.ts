/** What E2B calls a template: the name of a template, or the id of a kept checkpoint. */
import type { Engine } from '@torpor/engine';
import { type CheckpointId, isId, nameSchema, TorporError } from '@torpor/protocol';
import { notFound } from './failures.ts';

/** `team/name:tag`. Only the name has a meaning here. */
const FORM = /^(?:([^/:]+)\/)?([^/:]+)(?::([^/:]+))?$/;
/** There is one version of each template; these are E2B's tags for the newest version. */
const TAGS: readonly (string | undefined)[] = [undefined, 'default', 'latest'];

export type TemplateReference =
  | { readonly is: 'checkpoint'; readonly id: CheckpointId }
  | { readonly is: 'template'; readonly name: string };

/** Throws `not_found` for a text that cannot be the name of a template or snapshot. */
export function parseTemplateReference(text: string, org: string): TemplateReference {
  const [, team, name = '', tag] = FORM.exec(text) ?? [];
  const isOurs = (team === undefined || team === org) && TAGS.includes(tag);
  if (isOurs && isId('ckpt', name)) return { is: 'checkpoint', id: name };
  if (isOurs && nameSchema.safeParse(name).success) return { is: 'template', name };
  throw notFound(`The template "${text.slice(0, 100)}"`);
}

/** What a create starts from. A checkpoint must be kept: E2B's clients have deleted the others. */
export async function createSource(
  engine: Engine,
  org: string,
  templateId: string,
): Promise<{ readonly template: string } | { readonly from: CheckpointId }> {
  const named = parseTemplateReference(templateId, org);
  if (named.is === 'template') return { template: named.name };
  if ((await engine.keptCheckpoint(org, named.id)) === undefined) throw notFound(`The snapshot ${named.id}`);
  return { from: named.id };
}

/** The name for a new snapshot. */
export function parseSnapshotName(text: string, org: string): string {
  const [, team = org, name = '', tag] = FORM.exec(text) ?? [];
  if (team === org && TAGS.includes(tag) && !name.startsWith('ckpt_') && nameSchema.safeParse(name).success) {
    return name;
  }
  throw new TorporError('invalid_request', `"${text.slice(0, 100)}" cannot be the name of a snapshot.`, {
    hint: 'Use letters, digits, dot, dash and underscore. Tags other than "default" are not supported yet.',
  });
}
