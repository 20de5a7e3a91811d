/** A table with its headings. A narrow window scrolls it sideways. */
import type { ComponentChildren } from 'preact';

export interface TableProps {
  readonly columns: readonly string[];
  /** Adds a last column for buttons. Its heading is there for screen readers only. */
  readonly hasActions?: boolean;
  /** The rows. */
  readonly children: ComponentChildren;
}

export function Table({ columns, hasActions = false, children }: TableProps) {
  return (
    <div class="scroll-x">
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column}>{column}</th>
            ))}
            {hasActions && (
              <th>
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
