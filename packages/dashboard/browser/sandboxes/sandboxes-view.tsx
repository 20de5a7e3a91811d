/** All sandboxes: a live list that can be filtered, sorted and acted on, or one of them. */
import { signal, useComputed, useSignal } from '@preact/signals';
import type { SandboxId } from '@torpor/sdk';
import { useEffect, useRef } from 'preact/hooks';
import { loadKilled, loadSandboxes, sandboxes, sandboxesFault } from '../live/sandboxes.ts';
import { SandboxView } from '../sandbox/sandbox-view.tsx';
import { route } from '../shell/router.ts';
import type { ViewProps } from '../shell/sections.tsx';
import { canChange } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { attempt } from '../ui/toasts.tsx';
import { plural } from '../ui/units.ts';
import { ACTION_NAMES, ACTIONS, actOnAll, mayRun } from './actions.ts';
import { CreateDialog } from './create-dialog.tsx';
import { chosenSandboxes, GROUP_NAMES, type Group, inGroup, type ListChoice } from './list-order.ts';
import { SandboxTable } from './sandbox-table.tsx';

/** Kept while the user looks at one sandbox and comes back. */
const choice = signal<ListChoice>({ group: 'all', text: '', sortBy: 'created', descending: true });
const selected = signal<ReadonlySet<SandboxId>>(new Set());

export function SandboxesView({ parts }: ViewProps) {
  const [id, tab] = parts;
  return id === undefined ? <SandboxList /> : <SandboxView key={id} id={id as SandboxId} tab={tab} />;
}

function SandboxList() {
  const isCreating = useSignal(false);
  const filter = useRef<HTMLInputElement>(null);
  const shown = useComputed(() => chosenSandboxes(sandboxes.value.values(), choice.value));
  const fault = sandboxesFault.value;
  const { query } = route.value;
  useEffect(() => {
    const asked = GROUP_NAMES.find((group) => group === query.get('state'));
    if (asked !== undefined) chooseGroup(asked);
    const filter = query.get('filter');
    if (filter !== null) choice.value = { ...choice.value, text: filter };
    if (query.has('create') && canChange()) isCreating.value = true;
  }, [query]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.target instanceof Element && event.target.closest('input, textarea, select, dialog')) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '/') filter.current?.focus();
      else if (event.key === 'j' || event.key === 'ArrowDown') focusFirstRow();
      else if (event.key === 'c' && canChange()) isCreating.value = true;
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return (
    <>
      <div class="page-head">
        <h1>Sandboxes</h1>
        <div class="row push">
          <input
            ref={filter}
            type="search"
            class="filter"
            aria-label="Filter by name, id, template, node or metadata"
            placeholder="Filter ( / )"
            value={choice.value.text}
            onInput={({ currentTarget }) => {
              choice.value = { ...choice.value, text: currentTarget.value };
            }}
            onKeyDown={(event) => {
              if (event.key !== 'ArrowDown' && event.key !== 'Escape') return;
              event.preventDefault();
              if (event.key === 'ArrowDown') focusFirstRow();
              else choice.value = { ...choice.value, text: '' };
            }}
          />
          {canChange() && (
            <button
              type="button"
              class="button main"
              onClick={() => {
                isCreating.value = true;
              }}
            >
              Create
            </button>
          )}
        </div>
      </div>
      <Groups />
      {fault !== null && fault !== undefined && (
        <FaultNotice error={fault} retry={() => void loadSandboxes()} />
      )}
      {fault === null &&
        (sandboxes.value.size === 0 ? (
          <NoSandboxes />
        ) : shown.value.length === 0 ? (
          <p class="empty quiet">No sandbox matches.</p>
        ) : (
          <>
            <BulkActions />
            <SandboxTable rows={shown} choice={choice} selected={selected} />
          </>
        ))}
      {isCreating.value && (
        <CreateDialog
          onClose={() => {
            isCreating.value = false;
          }}
        />
      )}
    </>
  );
}

function focusFirstRow(): void {
  document.querySelector<HTMLElement>('.sandbox-list .row-link')?.focus();
}

const GROUP_TITLES: Readonly<Record<Group, string>> = {
  all: 'All',
  running: 'Running',
  paused: 'Asleep',
  trouble: 'Failed or lost',
  killed: 'Killed',
};

function chooseGroup(group: Group): void {
  choice.value = { ...choice.value, group };
  selected.value = new Set();
  if (group === 'killed') void attempt(loadKilled);
}

function Groups() {
  const all = [...sandboxes.value.values()];
  return (
    <fieldset class="groups" aria-label="State">
      {GROUP_NAMES.map((group) => (
        <button
          key={group}
          type="button"
          class="group"
          aria-pressed={choice.value.group === group}
          onClick={() => chooseGroup(group)}
        >
          {GROUP_TITLES[group]}
          {group !== 'killed' && (
            <span class="quiet number">{all.filter((sandbox) => inGroup(sandbox, group)).length}</span>
          )}
        </button>
      ))}
    </fieldset>
  );
}

function BulkActions() {
  const chosen = [...selected.value].flatMap((id) => sandboxes.value.get(id) ?? []);
  if (chosen.length === 0) return null;
  return (
    <div class="bulk" role="toolbar" aria-label="Actions on the selected sandboxes">
      <strong>{plural(chosen.length, 'sandbox', 'sandboxes')} selected</strong>
      {ACTION_NAMES.map((name) => {
        const fit = chosen.filter((sandbox) => mayRun(name, sandbox)).length;
        return (
          <button
            key={name}
            type="button"
            class={`button small${name === 'kill' ? ' danger' : ''}`}
            disabled={fit === 0}
            onClick={() => void actOnAll(name, chosen)}
          >
            {ACTIONS[name].label} {fit > 0 && fit < chosen.length ? fit : ''}
          </button>
        );
      })}
      <button
        type="button"
        class="button small plain"
        onClick={() => {
          selected.value = new Set();
        }}
      >
        Clear
      </button>
    </div>
  );
}

function NoSandboxes() {
  return (
    <div class="empty">
      <h2>No sandboxes yet</h2>
      <p class="quiet">
        A sandbox is an isolated computer for an agent or an app. It sleeps when nobody uses it, and wakes at
        the first request. Create one here, or from a program:
      </p>
      <pre class="panel">npx torpor create --name hello</pre>
      <p class="quiet small">
        <kbd>c</kbd> opens the form, <kbd>/</kbd> filters.
      </p>
    </div>
  );
}
