/** The facts of a sandbox, and its policies. */
import { useSignal } from '@preact/signals';
import type { SandboxState } from '@torpor/sdk';
import type { ComponentChildren } from 'preact';
import { put } from '../live/sandboxes.ts';
import { networkLines } from '../sandboxes/network-rules.ts';
import { Expiry } from '../sandboxes/sandbox-table.tsx';
import { href } from '../shell/router.ts';
import { canChange, torpor } from '../shell/session.ts';
import { type Retention, retentionText } from '../ui/retention.ts';
import { attempt } from '../ui/toasts.tsx';
import { clockTime, duration } from '../ui/units.ts';
import { NetworkDialog } from './network-dialog.tsx';
import type { TabProps } from './sandbox-view.tsx';

export function SummaryTab({ sandbox }: TabProps) {
  const { checkpointHealth: health, network, resources, metadata, services, urls = {} } = sandbox;
  return (
    <div class="columns">
      <section class="panel">
        <h2>Lifecycle</h2>
        <dl class="facts">
          <Fact title="Created">{clockTime(sandbox.createdAt)}</Fact>
          <Fact title="Started">{sandbox.startedAt === null ? 'never' : clockTime(sandbox.startedAt)}</Fact>
          <Fact title="Generation">{sandbox.generation}</Fact>
          <Fact title="Runtime">{sandbox.runtime}</Fact>
          {sandbox.node !== 'local' && <Fact title="Node">{sandbox.node}</Fact>}
          <Fact title="Template">{sandbox.template ?? 'a checkpoint'}</Fact>
          <Fact title="Ends">
            <Expiry sandbox={sandbox} />
          </Fact>
          <Fact title="Kept while asleep">
            {retentionText(sandbox.deletePausedAfterSeconds)}
            {sandbox.deletesAt !== null && `, until ${clockTime(sandbox.deletesAt)}`}
          </Fact>
          <Fact title="When idle">
            {sandbox.onIdle} after {duration(sandbox.idleSeconds * 1_000)}
          </Fact>
          {sandbox.warm !== null && (
            <Fact title="In memory">
              {sandbox.warm
                ? 'yes: it wakes within milliseconds'
                : `no${sandbox.warmReason === null ? '' : `: ${sandbox.warmReason}`}`}
            </Fact>
          )}
          <Fact title="Wakes on request">{sandbox.autoResume ? 'yes' : 'no'}</Fact>
          <Fact title="Last loss">{sandbox.lost.length === 0 ? 'nothing' : sandbox.lost.join(', ')}</Fact>
        </dl>
        <Lifetime sandbox={sandbox} />
        <KeptFor sandbox={sandbox} />
      </section>
      <section class="panel">
        <h2>Checkpoint</h2>
        {health === null ? (
          <p class="quiet">It has no checkpoint of its own yet. A pause or a snapshot makes one.</p>
        ) : (
          <dl class="facts">
            <Fact title="A wake would use">
              <a href={href('sandboxes', sandbox.id, 'checkpoints')}>
                <code>{sandbox.checkpointId ?? sandbox.baseId}</code>
              </a>
            </Fact>
            <Fact title="Health">
              <span class={health.health === 'ok' ? undefined : 'tag warn'}>{health.health}</span>
              {health.reason !== null && ` ${health.reason}`}
            </Fact>
            <Fact title="Contents read">
              {health.verifiedAt === null ? 'not yet' : clockTime(health.verifiedAt)}
            </Fact>
          </dl>
        )}
        <h2 class="second">Services</h2>
        {services.length === 0 ? (
          <p class="quiet">No services are declared.</p>
        ) : (
          <ul class="plain">
            {services.map(({ name, command, port }) => (
              <li key={name}>
                <strong>{name}</strong>{' '}
                {port !== undefined && (
                  <a href={href('sandboxes', sandbox.id, 'preview')} title={urls[port]}>
                    port {port}
                  </a>
                )}
                <div class="mono quiet wrap clamp" title={command}>
                  {command}
                </div>
              </li>
            ))}
          </ul>
        )}
      </section>
      <section class="panel">
        <h2>Limits</h2>
        <dl class="facts">
          <Fact title="Network">
            {networkLines(network).map((line) => (
              <div key={line}>{line}</div>
            ))}
          </Fact>
          <Fact title="Memory">
            {resources.memoryMb === undefined ? 'no limit' : `${resources.memoryMb} MB`}
          </Fact>
          <Fact title="CPUs">{resources.cpus ?? 'no limit'}</Fact>
          <Fact title="Disk">{resources.diskMb === undefined ? 'no limit' : `${resources.diskMb} MB`}</Fact>
          <Fact title="Preview">{sandbox.preview}</Fact>
          <Fact title="Metadata">
            {Object.keys(metadata).length === 0
              ? 'none'
              : Object.entries(metadata).map(([key, value]) => (
                  <div key={key} class="mono">
                    {key}={value}
                  </div>
                ))}
          </Fact>
        </dl>
        <ChangeNetwork sandbox={sandbox} />
      </section>
    </div>
  );
}

function Fact({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  return (
    <>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </>
  );
}

function ChangeNetwork({ sandbox }: TabProps) {
  const isOpen = useSignal(false);
  if (!mayBeSet(sandbox.state)) return null;
  return (
    <div class="row lifetime">
      <button
        type="button"
        class="button small"
        onClick={() => {
          isOpen.value = true;
        }}
      >
        Change the network…
      </button>
      {isOpen.value && (
        <NetworkDialog
          sandbox={sandbox}
          onClose={() => {
            isOpen.value = false;
          }}
        />
      )}
    </div>
  );
}

function mayBeSet(state: SandboxState): boolean {
  return canChange() && (state === 'running' || state === 'paused');
}

const KEPT_FOR: readonly (readonly [string, Retention])[] = [
  ['1 day', 86_400],
  ['30 days', 30 * 86_400],
  ['For ever', null],
  ['Default', 'default'],
];

/** How long it is kept while it sleeps and nobody uses it. */
function KeptFor({ sandbox: { id, state } }: TabProps) {
  const set = async (retention: Retention) => {
    const view = await attempt(
      () => torpor().sandboxes.setRetention(id, retention),
      'It is set how long the sandbox is kept.',
    );
    if (view !== undefined) put([view]);
  };
  if (!mayBeSet(state)) return null;
  return (
    <div class="row lifetime">
      <span class="quiet small">Keep it asleep, unused, for:</span>
      {KEPT_FOR.map(([title, retention]) => (
        <button key={title} type="button" class="button small" onClick={() => void set(retention)}>
          {title}
        </button>
      ))}
    </div>
  );
}

const LIFETIMES: readonly (readonly [string, number | null])[] = [
  ['15 minutes', 900],
  ['1 hour', 3_600],
  ['1 day', 86_400],
  ['No limit', null],
];

function Lifetime({ sandbox: { id, state } }: TabProps) {
  const busy = useSignal(false);
  if (!mayBeSet(state)) return null;
  const set = async (seconds: number | null) => {
    busy.value = true;
    const view = await attempt(() => torpor().sandboxes.setTimeout(id, seconds), 'The lifetime is set.');
    if (view !== undefined) put([view]);
    busy.value = false;
  };
  return (
    <div class="row lifetime">
      <span class="quiet small">Lifetime from now:</span>
      {LIFETIMES.map(([title, seconds]) => (
        <button
          key={title}
          type="button"
          class="button small"
          disabled={busy.value}
          onClick={() => void set(seconds)}
        >
          {title}
        </button>
      ))}
    </div>
  );
}
