/** Names of templates: unique in an organisation. A template with the name of a built-in one hides it there. */
import { TorporError } from '@torpor/protocol';
import type { Queryable, Transaction } from '../ports/database.ts';
import { insertTemplate, type Template } from './template.ts';

/** The templates that each runtime prepares when a server starts. */
export const BUILT_IN: readonly string[] = ['base'];

export async function refuseTakenTemplateName(db: Queryable, org: string, name: string): Promise<void> {
  const rows = await db.query(
    "SELECT name FROM templates WHERE org = $1 AND name = $2 AND state <> 'failed'",
    [org, name],
  );
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
