/** What E2B calls a template: one of ours by its name, or a checkpoint that was kept. */
import type { Engine } from '@torpor/engine';
import { type CheckpointId, isId, nameSchema, TorporError } from '@torpor/protocol';
import { notFound } from './failures.ts';

/** `team/name:tag`, of which only the name has a meaning here. */
const FORM = /^(?:([^/:]+)\/)?([^/:]+)(?::([^/:]+))?$/;
/** There is one version of everything, under the names that E2B gives to the newest. */
const TAGS: readonly (string | undefined)[] = [undefined, 'default', 'latest'];

export type TemplateReference =
  | { readonly is: 'checkpoint'; readonly id: CheckpointId }
  | { readonly is: 'template'; readonly name: string };

/** Throws `not_found` for what cannot name anything here. */
export function parseTemplateReference(text: string, org: string): TemplateReference {
  const [, team, name = '', tag] = FORM.exec(text) ?? [];
  const isOurs = (team === undefined || team === org) && TAGS.includes(tag);
  if (isOurs && isId('ckpt', name)) return { is: 'checkpoint', id: name };
  if (isOurs && nameSchema.safeParse(name).success) return { is: 'template', name };
  throw notFound(`The template "${text.slice(0, 100)}"`);
}

/** For a create. Only what was kept can be started from: what E2B's clients have deleted is not there any more. */
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

/** A name that a snapshot is to have. */
export function parseSnapshotName(text: string, org: string): string {
  const [, team = org, name = '', tag] = FORM.exec(text) ?? [];
  if (team === org && TAGS.includes(tag) && !name.startsWith('ckpt_') && nameSchema.safeParse(name).success) {
    return name;
  }
  throw new TorporError('invalid_request', `"${text.slice(0, 100)}" cannot be the name of a snapshot.`, {
    hint: 'Letters, digits, dot, dash and underscore; tags other than "default" are not there yet.',
  });
}
