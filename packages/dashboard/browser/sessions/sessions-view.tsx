/** Sessions: conversations with a program in a sandbox, what was said, and what happened at each wake. */
import { useSignal } from '@preact/signals';
import type { Session, SessionId, SessionView, TurnReply } from '@torpor/sdk';
import { collected } from '../live/collected.ts';
import { sandboxes } from '../live/sandboxes.ts';
import { plainText } from '../sandbox/plain-text.ts';
import { href } from '../shell/router.ts';
import type { ViewProps } from '../shell/sections.tsx';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { ListView } from '../ui/list-view.tsx';
import { StateBadge } from '../ui/state-badge.tsx';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { NewSession } from './new-session.tsx';

/** Turns and wakes are no events of the ledger, so a session is read again as long as it is shown. Reading wakes nothing. */
const EVERY_MS = 3_000;

export function SessionsView({ parts: [id] }: ViewProps) {
  return id === undefined ? <SessionList /> : <OneSession key={id} id={id as SessionId} />;
}

function SessionList() {
  const isCreating = useSignal(false);
  const sessions = useLoaded((signal) => torpor().sessions.page({ limit: 200, signal }), []);
  useEvery(EVERY_MS, sessions.reload);
  return (
    <>
      <ListView
        title="Sessions"
        loaded={sessions}
        beside={
          canChange() && (
            <button
              type="button"
              class="button main push"
              onClick={() => {
                isCreating.value = true;
              }}
            >
              New session
            </button>
          )
        }
      >
        {({ items }) =>
          items.length === 0 ? (
            <div class="empty">
              <h2>No sessions yet</h2>
              <p class="quiet">
                A session is a conversation with a program. Its sandbox sleeps between messages, and is
                replaced when it dies.
              </p>
              <pre class="panel">npx torpor session send chat-1 --command cat hello</pre>
            </div>
          ) : (
            <div class="panel">
              <Table columns={['Key', 'Program', 'Sandbox', 'Last change', 'Created']}>
                {items.map((session) => (
                  <tr key={session.id}>
                    <td>
                      <a href={href('sessions', session.id)}>{session.key}</a>
                      {session.error !== null && <span class="tag bad">{session.error.code}</span>}
                    </td>
                    <td class="mono">{session.program.command.slice(0, 60)}</td>
                    <td>
                      <SandboxLink session={session} />
                    </td>
                    <td>{session.change?.did ?? '–'}</td>
                    <td class="number">{clockTime(session.createdAt)}</td>
                  </tr>
                ))}
              </Table>
            </div>
          )
        }
      </ListView>
      {isCreating.value && (
        <NewSession
          onClose={() => {
            isCreating.value = false;
          }}
        />
      )}
    </>
  );
}

function SandboxLink({ session: { sandboxId } }: { readonly session: SessionView }) {
  const sandbox = sandboxId === null ? undefined : sandboxes.value.get(sandboxId);
  return sandboxId === null ? (
    <span class="quiet">none</span>
  ) : (
    <span class="row">
      <a class="mono" href={href('sandboxes', sandboxId)}>
        {sandbox?.name ?? sandboxId}
      </a>
      {sandbox !== undefined && <StateBadge sandbox={sandbox} />}
    </span>
  );
}

function OneSession({ id }: { readonly id: SessionId }) {
  const input = useSignal('');
  const busy = useSignal(false);
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const session = await torpor().sessions.get(id, { signal });
      return {
        session,
        turns: await collected(session.turns({ limit: 200, signal })),
        wakes: await collected(session.wakes({ limit: 200, signal })),
      };
    },
    [id],
  );
  useEvery(EVERY_MS, reload);
  if (error !== undefined && value === undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  const { session, turns, wakes } = value;
  const { view } = session;
  const send = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    const turn = await attempt(() => session.post(input.value));
    if (turn !== undefined) {
      input.value = '';
      reload();
      await attempt(async () => {
        for await (const _ of session.follow(turn.id)) void _;
      });
      reload();
    }
    busy.value = false;
  };
  return (
    <>
      <div class="page-head">
        <div>
          <h1>{view.key}</h1>
          <code class="quiet">{id}</code>
        </div>
        <SandboxLink session={view} />
        {view.endedAt !== null && <span class="tag">ended</span>}
        {view.endedAt === null && canChange() && <SessionActions session={session} reload={reload} />}
      </div>
      {view.error !== null && <p class="notice bad">{view.error.message}</p>}
      <div class="columns">
        <section class="panel wide">
          <h2>Turns</h2>
          {turns.length === 0 && <p class="quiet">Nothing was said yet.</p>}
          <ol class="plain turns">
            {turns.map((turn) => (
              <Turn key={turn.id} turn={turn} />
            ))}
          </ol>
          {view.endedAt === null && canChange() && (
            <form class="row send" onSubmit={send}>
              <input
                aria-label="Message"
                required
                value={input}
                onInput={({ currentTarget }) => {
                  input.value = currentTarget.value;
                }}
              />
              <button type="submit" class="button main" disabled={busy.value}>
                {busy.value ? 'Waiting for the answer…' : 'Send, and wake its sandbox'}
              </button>
            </form>
          )}
        </section>
        <section class="panel">
          <h2>Wakes</h2>
          {wakes.length === 0 && <p class="quiet">Its sandbox was never woken or replaced.</p>}
          <ol class="plain">
            {wakes.toReversed().map((wake) => (
              <li key={wake.ordinal}>
                <strong>{wake.did}</strong> <span class="quiet number small">{clockTime(wake.at)}</span>
                <div class="small quiet wrap">
                  {[
                    wake.message ?? wake.why,
                    wake.lost.length > 0 && `lost ${wake.lost.join(', ')}`,
                    wake.error?.message,
                    wake.times > 1 && `${wake.times} times`,
                  ]
                    .filter(Boolean)
                    .join(' · ')}
                </div>
              </li>
            ))}
          </ol>
        </section>
      </div>
    </>
  );
}

interface SessionActionsProps {
  readonly session: Session;
  readonly reload: () => void;
}

function SessionActions({ session, reload }: SessionActionsProps) {
  const { key } = session.view;
  const replace = async () => {
    const text =
      'It gets a new sandbox from the files of its last checkpoint. What changed after it is not in the new one. The present sandbox is left alone.';
    if (!(await confirm(`Replace the sandbox of ${key}?`, text, 'Replace'))) return;
    await attempt(() => session.rebind(), 'It has a new sandbox.');
    reload();
  };
  const end = async () => {
    if (!(await confirm(`End the session ${key}?`, 'Its sandbox ends too, with its files.', 'End'))) return;
    await attempt(() => session.end(), 'The session has ended.');
    reload();
  };
  return (
    <div class="row push">
      <button type="button" class="button" onClick={() => void replace()}>
        Replace its sandbox…
      </button>
      <button type="button" class="button danger" onClick={() => void end()}>
        End
      </button>
    </div>
  );
}

function Turn({ turn: { state, input, output, error, createdAt } }: { readonly turn: TurnReply }) {
  return (
    <li>
      <div class="turn-input wrap">{input}</div>
      <pre class="turn-output">{plainText(output)}</pre>
      <div class="small quiet">
        {state} · {clockTime(createdAt)}
        {error !== null && ` · ${error.message}`}
      </div>
    </li>
  );
}
