/** The public methods of a package of E2B's, as its type declarations have them. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { parseSync } from 'oxc-parser';

const require = createRequire(import.meta.url);

/** By class: the names of its methods, those of a class behind `static `. Errors are left out. */
export async function declaredMethods(name: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const path = join(dirname(require.resolve(`${name}/package.json`)), 'dist/index.d.ts');
  const { program } = parseSync(path, await readFile(path, 'utf8'));
  const found = new Map<string, string[]>();
  for (const statement of program.body) {
    if (statement.type !== 'ClassDeclaration' || statement.id === null) continue;
    if (/Error$/.test(statement.id.name)) continue;
    const methods = statement.body.body.flatMap((member) => {
      const isMethod = member.type === 'MethodDefinition' || member.type === 'TSAbstractMethodDefinition';
      if (!isMethod || member.kind !== 'method' || member.key.type !== 'Identifier') return [];
      if (member.accessibility === 'private' || member.accessibility === 'protected') return [];
      return [`${member.static ? 'static ' : ''}${member.key.name}`];
    });
    found.set(statement.id.name, [...new Set(methods)]);
  }
  return found;
}
