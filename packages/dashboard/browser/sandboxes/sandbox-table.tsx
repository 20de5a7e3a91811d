/** The rows of the list. Only the rows in sight are in the document, so that thousands scroll well. */
import { type ReadonlySignal, type Signal, useSignal } from '@preact/signals';
import type { SandboxId, SandboxView } from '@torpor/sdk';
import { useEffect, useRef } from 'preact/hooks';
import { go, href } from '../shell/router.ts';
import { now } from '../ui/clock.ts';
import { StateBadge } from '../ui/state-badge.tsx';
import { ago, countdown } from '../ui/units.ts';
import { ACTIONS, type ActionName, act, mayRun, nameOf } from './actions.ts';
import { type Column, expiryOf, type ListChoice } from './list-order.ts';

const ROW_PX = 44;
/** The name of the node of a server without other nodes. */
const ALONE = 'local';
/** Rows beyond the visible ones, so that fast scrolling shows no gap. */
const SPARE_ROWS = 8;

export interface SandboxTableProps {
  readonly rows: ReadonlySignal<readonly SandboxView[]>;
  readonly choice: Signal<ListChoice>;
  readonly selected: Signal<ReadonlySet<SandboxId>>;
}

export function SandboxTable({ rows, choice, selected }: SandboxTableProps) {
  const box = useRef<HTMLElement>(null);
  const first = useSignal(0);
  const visible = useSignal(30);
  const measure = () => {
    const { current } = box;
    if (current === null) return;
    first.value = Math.max(0, Math.floor(current.scrollTop / ROW_PX) - SPARE_ROWS);
    visible.value = Math.ceil(current.clientHeight / ROW_PX) + 2 * SPARE_ROWS;
  };
  useEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    if (box.current !== null) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const all = rows.value;
  const begin = Math.min(first.value, Math.max(0, all.length - visible.value));
  const shown = all.slice(begin, begin + visible.value);
  const toggle = (id: SandboxId) => {
    const next = new Set(selected.value);
    if (!next.delete(id)) next.add(id);
    selected.value = next;
  };
  const isWhole = all.length > 0 && all.every(({ id }) => selected.value.has(id));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll it
    <section ref={box} class="sandbox-list" onScroll={measure} tabIndex={0} aria-label="Sandboxes">
      <table aria-rowcount={all.length + 1}>
        <thead>
          <tr>
            <th class="check">
              <input
                type="checkbox"
                aria-label="Select all"
                checked={isWhole}
                onChange={() => {
                  selected.value = new Set(isWhole ? [] : all.map(({ id }) => id));
                }}
              />
            </th>
            <Heading column="name" choice={choice}>
              Name
            </Heading>
            <Heading column="state" choice={choice}>
              State
            </Heading>
            <Heading column="template" choice={choice} optional>
              Template
            </Heading>
            <Heading column="expires" choice={choice}>
              Ends
            </Heading>
            <Heading column="created" choice={choice} optional>
              Created
            </Heading>
            <th>
              <span class="unseen">Action</span>
            </th>
          </tr>
        </thead>
        <tbody>
          <Space rows={begin} />
          {shown.map((sandbox, index) => (
            <Row
              key={sandbox.id}
              sandbox={sandbox}
              index={begin + index + 2}
              isSelected={selected.value.has(sandbox.id)}
              onToggle={toggle}
            />
          ))}
          <Space rows={all.length - begin - shown.length} />
        </tbody>
      </table>
    </section>
  );
}

function Space({ rows }: { readonly rows: number }) {
  return rows <= 0 ? null : <tr class="space" style={{ height: `${rows * ROW_PX}px` }} />;
}

interface HeadingProps {
  readonly column: Column;
  readonly choice: Signal<ListChoice>;
  /** Not shown on a narrow screen. */
  readonly optional?: boolean;
  readonly children: string;
}

function Heading({ column, choice, optional, children }: HeadingProps) {
  const { sortBy, descending } = choice.value;
  const isSorted = sortBy === column;
  return (
    <th
      class={optional ? 'optional' : undefined}
      aria-sort={isSorted ? (descending ? 'descending' : 'ascending') : 'none'}
    >
      <button
        type="button"
        class="sort"
        onClick={() => {
          choice.value = {
            ...choice.value,
            sortBy: column,
            descending: isSorted ? !descending : column === 'created',
          };
        }}
      >
        {children}
        <span aria-hidden="true">{isSorted ? (descending ? ' ↓' : ' ↑') : ''}</span>
      </button>
    </th>
  );
}

interface RowProps {
  readonly sandbox: SandboxView;
  readonly index: number;
  readonly isSelected: boolean;
  readonly onToggle: (id: SandboxId) => void;
}

function Row({ sandbox, index, isSelected, onToggle }: RowProps) {
  const { id, name, template, runtime, node, metadata, createdAt } = sandbox;
  return (
    <tr
      aria-rowindex={index}
      class={isSelected ? 'selected' : undefined}
      onKeyDown={(event) => onRowKey(event, sandbox, onToggle)}
    >
      <td class="check">
        <input
          type="checkbox"
          aria-label={`Select ${nameOf(sandbox)}`}
          checked={isSelected}
          onChange={() => onToggle(id)}
        />
      </td>
      <td class="name">
        <a href={href('sandboxes', id)} class="row-link">
          <span class={name === null ? 'title none' : 'title'}>{name ?? 'unnamed'}</span>
          <span class="mono quiet row-facts">
            {[id, ...Object.entries(metadata).map(([key, value]) => `${key}=${value}`)].join(' · ')}
          </span>
        </a>
      </td>
      <td>
        <StateBadge sandbox={sandbox} />
        {sandbox.evidence === 'unknown' && <span class="tag warn">unconfirmed</span>}
      </td>
      <td class="optional">
        {template ?? '–'}{' '}
        <span class="quiet small">
          {runtime}
          {node !== ALONE && ` on ${node}`}
        </span>
      </td>
      <td class="number">
        <Expiry sandbox={sandbox} />
      </td>
      <td class="optional number">{ago(createdAt, now.value)}</td>
      <td class="act">
        <QuickAction sandbox={sandbox} />
      </td>
    </tr>
  );
}

/** Counts down to the end of the lifetime, or of the retention. */
export function Expiry({ sandbox }: { readonly sandbox: SandboxView }) {
  const at = expiryOf(sandbox);
  if (at === null) return <span class="quiet">–</span>;
  const deed = sandbox.state === 'paused' ? 'deleted' : sandbox.onTimeout === 'kill' ? 'killed' : 'paused';
  return (
    <span class="two-lines" title={new Date(at).toLocaleString()}>
      <span>{countdown(at - now.value)}</span>
      <span class="quiet small">until {deed}</span>
    </span>
  );
}

const QUICK: readonly ActionName[] = ['pause', 'wake'];

function QuickAction({ sandbox }: { readonly sandbox: SandboxView }) {
  const name = QUICK.find((one) => mayRun(one, sandbox));
  if (name === undefined) return null;
  return (
    <button type="button" class="button small" onClick={() => void act(name, sandbox)}>
      {ACTIONS[name].label}
      <span class="unseen"> {nameOf(sandbox)}</span>
    </button>
  );
}

/** Arrows (or j and k) move between rows, x selects, p pauses, w wakes, Enter opens. */
function onRowKey(event: KeyboardEvent, sandbox: SandboxView, onToggle: (id: SandboxId) => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const row = event.currentTarget as HTMLElement;
  const { key } = event;
  if (key === 'x') onToggle(sandbox.id);
  else if (key === 'p' && mayRun('pause', sandbox)) void act('pause', sandbox);
  else if (key === 'w' && mayRun('wake', sandbox)) void act('wake', sandbox);
  else if (key === 'Enter' && event.target === row) go('sandboxes', sandbox.id);
  else if (key === 'ArrowDown' || key === 'j') focusRow(row.nextElementSibling);
  else if (key === 'ArrowUp' || key === 'k') focusRow(row.previousElementSibling);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function focusRow(row: Element | null): void {
  row?.querySelector<HTMLElement>('.row-link')?.focus();
}
