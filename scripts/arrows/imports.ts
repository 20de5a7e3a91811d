/** Finds all modules that a source file names: in static, re-exporting, dynamic and type imports. */
import { parseSync, Visitor } from 'oxc-parser';

export interface Import {
  readonly specifier: string;
  readonly line: number;
}

/** Throws when the file cannot be parsed, because such a file may import anything. */
export function importsOf(file: string, text: string): Import[] {
  const { program, errors } = parseSync(file, text);
  const [broken] = errors;
  if (broken !== undefined) throw new SyntaxError(broken.message);

  const imports: Import[] = [];
  const found = (source: Source | null): void => {
    const specifier = source === null ? undefined : textOf(source);
    if (source === null || specifier === undefined) return;
    imports.push({ specifier, line: text.slice(0, source.start).split('\n').length });
  };
  new Visitor({
    ImportDeclaration: (node) => found(node.source),
    ExportNamedDeclaration: (node) => found(node.source),
    ExportAllDeclaration: (node) => found(node.source),
    ImportExpression: (node) => found(node.source),
    TSImportType: (node) => found(node.source),
  }).visit(program);
  return imports;
}

interface Source {
  readonly type: string;
  readonly start: number;
  readonly value?: unknown;
  readonly quasis?: readonly { readonly value: { readonly cooked: string | null } }[];
}

/** Undefined for a dynamic import whose module is computed at run time. */
function textOf(source: Source): string | undefined {
  if (typeof source.value === 'string') return source.value;
  const [only, ...more] = source.quasis ?? [];
  return more.length === 0 ? (only?.value.cooked ?? undefined) : undefined;
}
