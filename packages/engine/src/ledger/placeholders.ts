/** The parameters of an INSERT of several rows: `($1, $2), ($3, $4)` for two rows of two columns. */
export function placeholders(rows: number, columns: number): string {
  const row = (before: number) => Array.from({ length: columns }, (_, i) => `$${before + i + 1}`).join(', ');
  return Array.from({ length: rows }, (_, i) => `(${row(i * columns)})`).join(', ');
}
