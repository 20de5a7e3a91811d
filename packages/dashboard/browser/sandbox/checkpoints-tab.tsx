/** The checkpoints of a sandbox and its forks, drawn as a tree, and what can be done with each. */
import { signal, useSignal } from '@preact/signals';
import type { CheckpointView } from '@torpor/sdk';
import { recentEvents } from '../live/recent-events.ts';
import { put, sandboxes } from '../live/sandboxes.ts';
import { nameOf } from '../sandboxes/actions.ts';
import { go, href } from '../shell/router.ts';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { Field } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { StateBadge } from '../ui/state-badge.tsx';
import { attempt, say } from '../ui/toasts.tsx';
import { bytes, clockTime, plural } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { originsIn, startsIn } from './checkpoint-origins.ts';
import { type TreeRow, treeOf } from './checkpoint-tree.ts';
import type { TabProps } from './sandbox-view.tsx';
import { useSandboxChanges } from './use-sandbox-changes.ts';

/** On a phone the buttons of a row are below its text. */
const narrow = matchMedia('(max-width: 760px)');
const rowPx = signal(rowHeight());
narrow.addEventListener('change', () => {
  rowPx.value = rowHeight();
});

function rowHeight(): number {
  return narrow.matches ? 132 : 58;
}

const LANE_PX = 20;

export function CheckpointsTab({ sandbox }: TabProps) {
  const { id } = sandbox;
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const [page, events] = await Promise.all([
        torpor().sandboxes.checkpoints(id, { limit: 1_000, signal }),
        torpor().eventPage({ sandboxId: id, order: 'newest', limit: 1_000, signal }),
      ]);
      return { ...page, origins: originsIn(events.items) };
    },
    [id],
  );
  useSandboxChanges(id, reload);
  const isNaming = useSignal(false);
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  const rows = treeOf(sandbox, value.items, sandboxes.value.values(), startsIn(recentEvents.value ?? []));
  const lanes = Math.max(...rows.map(({ lane }) => lane)) + 1;
  const canSnapshot = canChange() && (sandbox.state === 'running' || sandbox.state === 'paused');
  return (
    <div class="stack">
      <div class="row">
        <span class="quiet">
          {plural(value.items.length, 'checkpoint')}, {bytes(value.bytes)}
        </span>
        {canSnapshot && (
          <button
            type="button"
            class="button small"
            onClick={() => {
              isNaming.value = true;
            }}
          >
            Named snapshot…
          </button>
        )}
      </div>
      <div class="tree" style={{ '--lanes': `${lanes * LANE_PX + 12}px` }}>
        <Lines rows={rows} lanes={lanes} />
        <ol class="plain">
          {rows.map(({ node }) => (
            <li key={node.id} class="tree-row" style={{ height: `${rowPx.value}px` }}>
              {node.kind === 'origin' && (
                <div>
                  <strong>{node.title}</strong>
                  <div class="mono quiet">{node.id}</div>
                </div>
              )}
              {node.kind === 'sandbox' && (
                <div>
                  <strong title={nameOf(node.sandbox)}>
                    {node.isOwn ? (
                      `${nameOf(node.sandbox)}, now`
                    ) : (
                      <a href={href('sandboxes', node.id)}>fork {nameOf(node.sandbox)}</a>
                    )}
                  </strong>
                  <div>
                    <StateBadge sandbox={node.sandbox} />
                  </div>
                </div>
              )}
              {node.kind === 'checkpoint' && (
                <Checkpoint
                  checkpoint={node.checkpoint}
                  origin={value.origins.get(node.checkpoint.id)}
                  sandbox={sandbox}
                  reload={reload}
                />
              )}
            </li>
          ))}
        </ol>
      </div>
      {isNaming.value && (
        <NameDialog
          title={`Snapshot of ${nameOf(sandbox)}`}
          action="Seal a checkpoint"
          onName={async (name) => {
            await torpor().sandboxes.snapshot(id, { name });
            say('Sealed.');
          }}
          onClose={() => {
            isNaming.value = false;
          }}
        />
      )}
    </div>
  );
}

function Lines({ rows, lanes }: { readonly rows: readonly TreeRow[]; readonly lanes: number }) {
  const x = (lane: number) => lane * LANE_PX + 10;
  const y = (row: number) => row * rowPx.value + 18;
  return (
    <svg
      class="tree-lines"
      width={lanes * LANE_PX + 12}
      height={rows.length * rowPx.value}
      aria-hidden="true"
      focusable="false"
    >
      {rows.map(({ node, lane, parentRow }, row) => {
        const parent = parentRow === null ? undefined : rows[parentRow];
        if (parent === undefined || parentRow === null) return null;
        const [fromX, fromY, toX, toY] = [x(parent.lane), y(parentRow), x(lane), y(row)];
        const bend =
          fromX === toX ? `V${toY}` : `V${fromY + 12}Q${fromX} ${fromY + 24} ${toX} ${fromY + 28}V${toY}`;
        return <path key={node.id} class="tree-line" d={`M${fromX} ${fromY}${bend}`} />;
      })}
      {rows.map(({ node, lane }, row) =>
        node.kind === 'sandbox' ? (
          <rect
            key={node.id}
            class={`tree-node ${node.sandbox.state === 'running' ? 'running' : ''}`}
            x={x(lane) - 5}
            y={y(row) - 5}
            width="10"
            height="10"
            rx="2"
          />
        ) : (
          <circle
            key={node.id}
            class={`tree-node ${node.kind === 'checkpoint' && node.checkpoint.health === 'damaged' ? 'bad' : ''}`}
            cx={x(lane)}
            cy={y(row)}
            r="5"
          />
        ),
      )}
    </svg>
  );
}

interface CheckpointProps extends TabProps {
  readonly checkpoint: CheckpointView;
  /** How it came about, where the known events say so. */
  readonly origin: string | undefined;
  readonly reload: () => void;
}

function Checkpoint({ checkpoint, origin, sandbox, reload }: CheckpointProps) {
  const isNaming = useSignal(false);
  const { id, names, parts, health, healthDetail, recovered, createdAt, verifiedAt, state } = checkpoint;
  const verify = async () => {
    const read = await attempt(() => torpor().checkpoints.verify(id));
    if (read !== undefined) say(`${id}: ${read.health}.`);
    reload();
  };
  const rename = async (name: string) => {
    await torpor().checkpoints.name(id, name);
    say('Named. It stays until it is deleted.');
    reload();
  };
  const createFrom = async () => {
    const made = await attempt(() => torpor().sandboxes.create({ from: id }));
    if (made === undefined) return;
    put([made]);
    go('sandboxes', made.id);
  };
  const rollBack = async () => {
    const text =
      'What changed after this checkpoint is lost, unless another checkpoint has it. The sandbox runs then.';
    if (!(await confirm(`Roll ${nameOf(sandbox)} back?`, text, 'Roll back'))) return;
    const reply = await attempt(() => torpor().sandboxes.rollback(sandbox.id, id), 'Rolled back.');
    if (reply !== undefined) put([reply.sandbox]);
  };
  const remove = async () => {
    if (!(await confirm('Delete this checkpoint?', `${id} cannot be started again.`, 'Delete'))) return;
    await attempt(() => torpor().checkpoints.delete(id), 'Deleted.');
    reload();
  };
  const isAlive = sandbox.state === 'running' || sandbox.state === 'paused';
  return (
    <>
      <div>
        <div class="row">
          <strong title={names.join(', ')}>
            {names.length > 0 ? names.join(', ') : clockTime(createdAt)}
          </strong>
          <span class="tag">{parts.memory ? 'memory and files' : 'files'}</span>
          {checkpoint.bytes !== null && <span class="quiet number">{bytes(checkpoint.bytes)}</span>}
          <span class={health === 'ok' ? 'tag' : 'tag warn'} title={healthDetail ?? undefined}>
            {health}
          </span>
          {recovered && <span class="tag warn">recovered</span>}
          {state === 'writing' && <span class="tag warn">being written</span>}
        </div>
        <div class="small quiet">
          <code>{id}</code>
          {names.length > 0 && ` · ${clockTime(createdAt)}`}
          {origin !== undefined && ` · ${origin}`}
          {verifiedAt !== null && ` · ${health === 'ok' ? 'verified' : 'read'} ${clockTime(verifiedAt)}`}
        </div>
      </div>
      {state === 'sealed' && canChange() && (
        <div class="row push">
          <button type="button" class="button small" onClick={() => void createFrom()}>
            Fork
          </button>
          {isAlive && (
            <button type="button" class="button small" onClick={() => void rollBack()}>
              {sandbox.state === 'paused' ? 'Roll back and wake' : 'Roll back'}
            </button>
          )}
          <button
            type="button"
            class="button small plain"
            onClick={() => {
              isNaming.value = true;
            }}
          >
            Name…
          </button>
          <button type="button" class="button small plain" onClick={() => void verify()}>
            Verify
          </button>
          <button type="button" class="button small plain danger" onClick={() => void remove()}>
            Delete
          </button>
        </div>
      )}
      {isNaming.value && (
        <NameDialog
          title="Name this checkpoint"
          action="Name it"
          onName={rename}
          onClose={() => {
            isNaming.value = false;
          }}
        />
      )}
    </>
  );
}

interface NameDialogProps {
  readonly title: string;
  /** What the button says. */
  readonly action: string;
  readonly onName: (name: string) => Promise<void>;
  readonly onClose: () => void;
}

function NameDialog({ title, action, onName, onClose }: NameDialogProps) {
  const name = useSignal('');
  return (
    <FormDialog title={title} action={action} work={() => onName(name.value.trim())} onClose={onClose}>
      <Field label="Name" hint="Letters, digits, dot, dash, underscore.">
        <input
          required
          pattern="[a-zA-Z0-9][a-zA-Z0-9._\-]{0,62}"
          value={name}
          onInput={({ currentTarget: { value } }) => {
            name.value = value;
          }}
        />
      </Field>
    </FormDialog>
  );
}
