/** Parameters of a list: `$2, $3` for two values from the second parameter on. */
export function listPlaceholders(values: number, first = 1): string {
  return Array.from({ length: values }, (_, i) => `$${first + i}`).join(', ');
}

/** The parameters of an INSERT of several rows: `($1, $2), ($3, $4)` for two rows of two columns. */
export function placeholders(rows: number, columns: number): string {
  return Array.from({ length: rows }, (_, i) => `(${listPlaceholders(columns, i * columns + 1)})`).join(', ');
}
