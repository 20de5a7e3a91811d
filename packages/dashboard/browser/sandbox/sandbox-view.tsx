/** One sandbox: its state and how it is known, what can be done with it, and tabs for the rest. */
import { useSignal } from '@preact/signals';
import { NotFoundError, type SandboxId, type SandboxView as View } from '@torpor/sdk';
import type { ComponentType } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { put, refreshSandbox, sandboxes } from '../live/sandboxes.ts';
import { ACTION_NAMES, ACTIONS, act, mayRun } from '../sandboxes/actions.ts';
import { expiryOf } from '../sandboxes/list-order.ts';
import { Expiry } from '../sandboxes/sandbox-table.tsx';
import { href } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { now } from '../ui/clock.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { showCurrent } from '../ui/show-current.ts';
import { StateBadge } from '../ui/state-badge.tsx';
import { ago, clockTime } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { CheckpointsTab } from './checkpoints-tab.tsx';
import { FilesTab } from './files-tab.tsx';
import { LogsTab } from './logs-tab.tsx';
import { MetricsTab } from './metrics-tab.tsx';
import { PreviewTab } from './preview-tab.tsx';
import { ProcessesTab } from './processes-tab.tsx';
import { SummaryTab } from './summary-tab.tsx';
import { TerminalTab } from './terminal-tab.tsx';
import { TimelineTab } from './timeline-tab.tsx';
import { UseTab } from './use-tab.tsx';

export interface TabProps {
  readonly sandbox: View;
}

const TABS: readonly (readonly [path: string, title: string, view: ComponentType<TabProps>])[] = [
  ['', 'Summary', SummaryTab],
  ['timeline', 'Timeline', TimelineTab],
  ['checkpoints', 'Checkpoints', CheckpointsTab],
  ['terminal', 'Terminal', TerminalTab],
  ['files', 'Files', FilesTab],
  ['processes', 'Processes', ProcessesTab],
  ['preview', 'Preview', PreviewTab],
  ['logs', 'Logs', LogsTab],
  ['metrics', 'Metrics', MetricsTab],
  ['use', 'Use it', UseTab],
];

const OBSERVE_EVERY_MS = 10_000;

interface SandboxViewProps {
  readonly id: SandboxId;
  readonly tab: string | undefined;
}

export function SandboxView({ id, tab = '' }: SandboxViewProps) {
  const known = sandboxes.value.get(id);
  const tabs = useRef<HTMLElement>(null);
  const isKnown = known !== undefined;
  // A shell, and the server that was started in it, must not end because the user looks at the preview.
  const hasTerminal = useSignal(false);
  if (tab === 'terminal') hasTerminal.value = true;
  useEffect(() => {
    showCurrent(tabs.current);
    if (tab === 'terminal') document.querySelector<HTMLElement>('.xterm-helper-textarea')?.focus();
  }, [tab, isKnown]);
  // The list has no killed sandboxes, and may not be loaded yet.
  const { error, reload } = useLoaded(
    async (signal) => {
      if (sandboxes.value.has(id)) return;
      put([await torpor().sandboxes.get(id, { signal })]);
    },
    [id],
  );
  // The server observes a running sandbox when it is asked for it, so what is shown stays confirmed.
  useEffect(() => {
    void refreshSandbox(id);
  }, [id]);
  useEvery(OBSERVE_EVERY_MS, () => void refreshSandbox(id));
  if (known === undefined) {
    if (error === undefined) return null;
    return (
      <div class="empty">
        <h1>{error instanceof NotFoundError ? 'There is no such sandbox' : 'Sandbox'}</h1>
        <FaultNotice error={error} retry={reload} />
        <a class="button" href={href('sandboxes')}>
          All sandboxes
        </a>
      </div>
    );
  }
  const [, , Tab] = TABS.find(([path]) => path === tab) ?? (TABS[0] as (typeof TABS)[number]);
  return (
    <>
      <Head sandbox={known} />
      <nav ref={tabs} class="tabs" aria-label="Parts of the sandbox">
        {TABS.map(([path, title]) => (
          <a
            key={path}
            href={href('sandboxes', id, ...(path === '' ? [] : [path]))}
            aria-current={path === tab ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {hasTerminal.value && (
        <div class="terminal-keep" hidden={tab !== 'terminal'}>
          <TerminalTab sandbox={known} />
        </div>
      )}
      {tab !== 'terminal' && <Tab sandbox={known} />}
    </>
  );
}

function Head({ sandbox }: TabProps) {
  const { id, name, state } = sandbox;
  return (
    <>
      <div class="page-head sandbox-head">
        <div>
          <h1 class={name === null ? 'quiet' : undefined}>{name ?? 'unnamed'}</h1>
          <code class="quiet">{id}</code>
        </div>
        <div>
          <StateBadge sandbox={sandbox} />
          <Evidence sandbox={sandbox} />
        </div>
        {expiryOf(sandbox) !== null && (
          <div class="number">
            <Expiry sandbox={sandbox} />
          </div>
        )}
        <div class="row push">
          {ACTION_NAMES.filter((action) => mayRun(action, sandbox)).map((action) => (
            <button
              key={action}
              type="button"
              class={`button${action === 'kill' ? ' danger' : ''}${action === 'wake' ? ' main' : ''}`}
              onClick={() => void act(action, sandbox)}
            >
              {ACTIONS[action].label}
            </button>
          ))}
        </div>
      </div>
      {sandbox.reason !== null && state !== 'killed' && <p class="notice warn reason">{sandbox.reason}</p>}
    </>
  );
}

const EVIDENCE: Readonly<Record<View['evidence'], string>> = {
  running: 'seen running',
  frozen: 'seen frozen',
  gone: 'seen gone',
  unknown: 'could not be asked',
  ledger: 'as recorded',
};

/** How the state is known. */
function Evidence({ sandbox: { evidence, observedAt, operationKind } }: TabProps) {
  return (
    <div
      class={`small number ${evidence === 'unknown' ? 'warn-text' : 'quiet'}`}
      title={clockTime(observedAt)}
    >
      {EVIDENCE[evidence]} {ago(observedAt, now.value)}
      {operationKind !== null && ` · ${operationKind} under way`}
    </div>
  );
}
