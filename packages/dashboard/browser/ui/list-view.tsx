/** The frame of a view that lists something: the title, an error, and the list when it is loaded. */
import { isTransportFault } from '@torpor/sdk';
import type { ComponentChildren } from 'preact';
import { FaultNotice } from './fault.tsx';
import type { Loaded } from './use-loaded.ts';

export interface ListViewProps<T> {
  readonly title: string;
  /** What is shown beside the title. */
  readonly beside?: ComponentChildren;
  readonly loaded: Loaded<T>;
  /** The list, or what is shown instead of an empty one. */
  readonly children: (value: T) => ComponentChildren;
}

export function ListView<T>({ title, beside, loaded, children }: ListViewProps<T>) {
  const { value, error, reload } = loaded;
  // While the server is away the line above all views says how old the shown values are.
  const isShown = error !== undefined && (value === undefined || !isTransportFault(error));
  return (
    <>
      <div class="page-head">
        <h1>{title}</h1>
        {beside}
      </div>
      {isShown && <FaultNotice error={error} retry={reload} />}
      {value !== undefined && children(value)}
    </>
  );
}
