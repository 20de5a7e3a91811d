/** Names of templates: built-in names are reserved, and every other name is unique in an organisation. */
import { TorporError } from '@torpor/protocol';
import { SHARED_ORG } from '../checkpoints/checkpoint.ts';
import type { Queryable, Transaction } from '../ports/database.ts';
import { insertTemplate, type Template } from './template.ts';

/** The templates that each runtime prepares when a server starts. */
export const BUILT_IN: readonly string[] = ['base'];

export async function refuseTakenTemplateName(db: Queryable, org: string, name: string): Promise<void> {
  const rows = await db.query<{ org: string }>(
    "SELECT org FROM templates WHERE name = $2 AND (org = $1 OR org = $3) AND state <> 'failed'",
    [org, name, SHARED_ORG],
  );
  if (BUILT_IN.includes(name) || rows.some((row) => row.org === SHARED_ORG)) {
    throw new TorporError('conflict', `The name "${name}" belongs to a built-in template.`, {
      hint: 'Choose another name.',
    });
  }
  if (rows.length > 0) throw nameTaken(name);
}

function nameTaken(name: string): TorporError {
  return new TorporError('conflict', `There is a template named "${name}" already.`, {
    hint: 'Choose another name, or delete the template that has it.',
  });
}

/** Frees the name of a template that is ready. The checkpoint of the template stays. */
export async function freeName(tx: Transaction, org: string, name: string): Promise<void> {
  await tx.query("DELETE FROM templates WHERE org = $1 AND name = $2 AND state = 'ready'", [org, name]);
}

/** The unique index decides between two concurrent inserts. A failed template gives its name up. */
export async function insertWithFreeName(tx: Transaction, template: Template): Promise<void> {
  const { org, name } = template;
  await refuseTakenTemplateName(tx, org, name);
  await tx.query("DELETE FROM templates WHERE org = $1 AND name = $2 AND state = 'failed'", [org, name]);
  if (!(await insertTemplate(tx, template))) throw nameTaken(name);
}
