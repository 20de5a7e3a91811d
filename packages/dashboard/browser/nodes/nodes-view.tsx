/** The nodes of a cluster: how they are, what runs on each, and how to take one away. */
import type { NodeView, SandboxState } from '@torpor/sdk';
import type { ComponentChildren } from 'preact';
import { href } from '../shell/router.ts';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { ListView } from '../ui/list-view.tsx';
import { Meter } from '../ui/meter.tsx';
import { StateDot } from '../ui/state-badge.tsx';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { bytes, clockTime, plural } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { type Misfit, misfitsOf } from './misfits.ts';

const EVERY_MS = 2_000;
const MEGABYTE = 1024 * 1024;

export function NodesView() {
  const nodes = useLoaded((signal) => torpor().nodes.list({ signal }), []);
  useEvery(EVERY_MS, nodes.reload);
  return (
    <ListView title="Nodes" loaded={nodes}>
      {(all) =>
        all.length === 0 ? (
          <Alone />
        ) : (
          <>
            <Totals nodes={all} />
            {misfitsOf(all).map((misfit) => (
              <MisfitNotice key={misfit.runtime} misfit={misfit} />
            ))}
            <div class="panel nodes">
              <Table columns={['Node', 'State', 'Sandboxes', 'Memory', 'Disk', 'Version']} hasActions>
                {all.map((node) => (
                  <Row key={node.name} node={node} reload={nodes.reload} />
                ))}
              </Table>
            </div>
          </>
        )
      }
    </ListView>
  );
}

function Totals({ nodes }: { readonly nodes: readonly NodeView[] }) {
  const alive = nodes.filter(({ state }) => state === 'alive');
  const sum = (of: (node: NodeView) => number) => nodes.reduce((total, node) => total + of(node), 0);
  const memoryMb = sum(({ used }) => used.memoryMb);
  return (
    <p class="quiet node-totals">
      {alive.length === nodes.length
        ? `${plural(nodes.length, 'node')}, all alive`
        : `${alive.length} of ${plural(nodes.length, 'node')} alive`}
      {' · '}
      {plural(
        sum(({ used }) => used.running),
        'running sandbox',
        'running sandboxes',
      )}
      , {sum(({ used }) => used.paused)} asleep
      {memoryMb > 0 && ` · ${bytes(memoryMb * MEGABYTE)} of memory given to them`}
    </p>
  );
}

function MisfitNotice({ misfit: { runtime, groups } }: { readonly misfit: Misfit }) {
  return (
    <div class="notice warn">
      <strong>Memory images of {runtime} do not fit all nodes</strong>
      <span>
        {groups.map((names) => names.join(', ')).join(' | ')}: a sandbox that wakes on a node of another group
        keeps its files and loses its processes. The machines differ in runsc or in their processors.
      </span>
    </div>
  );
}

function Alone() {
  return (
    <section class="panel stack">
      <h2>This server is alone</h2>
      <p class="quiet">
        Several servers can share a PostgreSQL database and a store. Then any of them answers for every
        sandbox, and a sandbox wakes on another machine when its own is away. All of them need the same{' '}
        <code>TORPOR_CLUSTER_SECRET</code>.
      </p>
      <p>
        <code>
          npx torpor up --node a --advertise http://10.0.0.5:7676 --database postgres://… --store s3://…
        </code>
      </p>
    </section>
  );
}

function Row({ node, reload }: { readonly node: NodeView; readonly reload: () => void }) {
  const { name, address, self, version, capacity, used } = node;
  return (
    <tr>
      <td>
        <strong>{name}</strong> {self && <span class="tag">answers you</span>}
        <div class="small quiet mono">{address}</div>
      </td>
      <td>
        <State node={node} />
        <Drain node={node} />
      </td>
      <td class="number">
        <a href={`${href('sandboxes')}?filter=${encodeURIComponent(`node=${name}`)}`}>
          {used.running} running
        </a>
        <div class="small quiet">{used.paused} asleep</div>
        {used.unknown > 0 && <div class="small bad-text">{used.unknown} unknown</div>}
      </td>
      <Use
        title={`Memory of ${name}`}
        used={used.memoryMb * MEGABYTE}
        capacity={capacity.memoryMb * MEGABYTE}
      />
      <Use title={`Disk of ${name}`} used={used.diskBytes} capacity={capacity.diskBytes}>
        {used.cacheBytes !== null && (
          <div class="small quiet">
            checkpoints {bytes(used.cacheBytes)}
            {capacity.cacheBytes !== null && ` of ${bytes(capacity.cacheBytes)}`}
          </div>
        )}
      </Use>
      <td>{version}</td>
      <td class="act">{canChange() && <Actions node={node} reload={reload} />}</td>
    </tr>
  );
}

interface UseProps {
  readonly title: string;
  readonly used: number;
  readonly capacity: number;
  readonly children?: ComponentChildren;
}

function Use({ title, used, capacity, children }: UseProps) {
  const share = capacity === 0 ? 0 : used / capacity;
  return (
    <td class="number">
      {bytes(used)} <span class="small quiet">of {bytes(capacity)}</span>
      <Meter
        label={`${title}: used`}
        share={share}
        weight={share > 0.95 ? 'bad' : share > 0.8 ? 'warn' : 'plain'}
      />
      {children}
    </td>
  );
}

type Shown = 'away' | 'draining' | 'drained' | 'cordoned' | 'alive';

/** The state of a sandbox whose shape the state of a node has. */
const SHAPES: Readonly<Record<Shown, SandboxState>> = {
  away: 'lost',
  draining: 'pausing',
  drained: 'paused',
  cordoned: 'paused',
  alive: 'running',
};

function shownState({ state, cordoned, draining, drain }: NodeView): Shown {
  if (state === 'away') return 'away';
  if (draining) return drain !== null && drain.endedAt !== null ? 'drained' : 'draining';
  return cordoned ? 'cordoned' : 'alive';
}

function State({ node }: { readonly node: NodeView }) {
  const { leaseUntil, fencedAt } = node;
  const shown = shownState(node);
  return (
    <>
      <span class={shown === 'away' ? 'state bad-text' : 'state'}>
        <StateDot state={SHAPES[shown]} />
        {shown}
      </span>
      {shown === 'away' && (
        <div class="small quiet">
          {fencedAt === null
            ? `not heard of since ${clockTime(leaseUntil)}`
            : `given up at ${clockTime(fencedAt)}`}
        </div>
      )}
    </>
  );
}

function Drain({ node: { drain } }: { readonly node: NodeView }) {
  if (drain === null) return null;
  const { moved, replicated, left, endedAt, failures } = drain;
  return (
    <div class="small quiet" role="status">
      {endedAt === null && `${left} left, `}
      {moved} moved, {replicated} asleep in the store
      {failures.map(({ sandboxId, why }) => (
        <div key={sandboxId} class="bad-text wrap">
          {sandboxId}: {why}
        </div>
      ))}
    </div>
  );
}

function Actions({ node, reload }: { readonly node: NodeView; readonly reload: () => void }) {
  const { name, state, cordoned, draining, used } = node;
  const act = async (work: () => Promise<unknown>, done: string) => {
    await attempt(work, done);
    reload();
  };
  const drain = async () => {
    const text = `${plural(used.running, 'running sandbox', 'running sandboxes')} will be moved to other nodes. Requests wait meanwhile.`;
    if (await confirm(`Drain ${name}?`, text, 'Drain'))
      await act(() => torpor().nodes.drain(name), 'The node is being drained.');
  };
  const forget = async () => {
    const text =
      'Only for a machine that will not come back. Its sandboxes whose checkpoints are in the store wake elsewhere; all others are lost.';
    if (await confirm(`Forget ${name}?`, text, 'Forget'))
      await act(() => torpor().nodes.forget(name), 'The node is forgotten.');
  };
  const label = <span class="unseen"> {name}</span>;
  return (
    <>
      {cordoned || draining ? (
        <button
          type="button"
          class="button small"
          onClick={() => void act(() => torpor().nodes.uncordon(name), 'It gets new sandboxes again.')}
        >
          Uncordon{label}
        </button>
      ) : (
        <button
          type="button"
          class="button small"
          onClick={() => void act(() => torpor().nodes.cordon(name), 'It gets no new sandboxes.')}
        >
          Cordon{label}
        </button>
      )}{' '}
      {state === 'alive' && !draining && (
        <button type="button" class="button small" onClick={() => void drain()}>
          Drain{label}
        </button>
      )}{' '}
      {state === 'away' && (
        <button type="button" class="button small danger" onClick={() => void forget()}>
          Forget{label}
        </button>
      )}
    </>
  );
}
