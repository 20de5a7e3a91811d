/** Webhooks: events of the ledger, sent to programs, with what waits and what was given up. */
import { useSignal } from '@preact/signals';
import type { CreatedWebhook, EventFilter, WebhookView } from '@torpor/sdk';
import { canChange, torpor } from '../shell/session.ts';
import { now } from '../ui/clock.ts';
import { confirm } from '../ui/confirm.tsx';
import { Copyable } from '../ui/copyable.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { NumberField, TextField } from '../ui/fields.tsx';
import { given, numberIn, wordsIn } from '../ui/form-values.ts';
import { ListView } from '../ui/list-view.tsx';
import { attempt, say } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { useSubmit } from '../ui/use-submit.ts';
import { DeadLetters } from './dead-letters.tsx';
import { ReplayDialog } from './replay-dialog.tsx';
import { statusOf } from './webhook-status.ts';

const EVERY_MS = 3_000;

export function WebhooksView() {
  const webhooks = useLoaded((signal) => torpor().webhooks.page({ limit: 500, signal }), []);
  // A delivery is no event of the ledger.
  useEvery(EVERY_MS, webhooks.reload);
  return (
    <ListView
      title="Webhooks"
      loaded={webhooks}
      beside={<span class="quiet">Every event at least once, signed, and in order for each sandbox.</span>}
    >
      {({ items }) => (
        <div class="stack">
          {items.length === 0 && (
            <div class="empty">
              <h2>No webhooks yet</h2>
              <p class="quiet">
                A webhook sends the events of this organisation to a program of yours, so that it need not
                keep a stream open.
              </p>
            </div>
          )}
          {items.map((webhook) => (
            <Webhook key={webhook.id} webhook={webhook} reload={webhooks.reload} />
          ))}
          {canChange() && <NewWebhook reload={webhooks.reload} />}
        </div>
      )}
    </ListView>
  );
}

interface WebhookProps {
  readonly webhook: WebhookView;
  readonly reload: () => void;
}

const MARKS = { good: 'ok', warn: 'waiting', bad: 'failing' } as const;

function Webhook({ webhook, reload }: WebhookProps) {
  const { id, url, events, position, dead, error } = webhook;
  const status = statusOf(webhook, now.value);
  const showsDead = useSignal(false);
  const replays = useSignal(false);
  const test = async () => {
    const outcome = await attempt(() => torpor().webhooks.test(id));
    if (outcome === undefined) return;
    const { delivered, status: code, durationMs, error: reason } = outcome;
    say(delivered ? `Delivered: ${code} in ${durationMs} ms.` : `Not delivered: ${reason}`);
  };
  const remove = async () => {
    const text = 'Events that wait for it are not sent any more.';
    if (!(await confirm(`Delete the webhook to ${url}?`, text, 'Delete'))) return;
    await attempt(() => torpor().webhooks.delete(id), 'Deleted.');
    reload();
  };
  return (
    <section class="panel stack" aria-label={`Webhook to ${url}`}>
      <div class="row">
        <div>
          <strong class="wrap">{url}</strong>
          <div class="small quiet">
            <code>{id}</code> · {events.join(', ') || 'all events'} · since {clockTime(webhook.createdAt)}
          </div>
        </div>
        {canChange() && (
          <div class="row push">
            <button type="button" class="button small" onClick={() => void test()}>
              Send a test<span class="unseen"> to {url}</span>
            </button>
            <button
              type="button"
              class="button small"
              onClick={() => {
                replays.value = true;
              }}
            >
              Replay…<span class="unseen"> to {url}</span>
            </button>
            <button type="button" class="button small danger" onClick={() => void remove()}>
              Delete<span class="unseen"> the webhook to {url}</span>
            </button>
          </div>
        )}
      </div>
      <p>
        <span class={`mark ${status.weight === 'warn' ? 'note' : status.weight}`}>
          {MARKS[status.weight]}
        </span>{' '}
        {status.text} <span class="quiet">· read up to position {position.toLocaleString()}</span>
      </p>
      {error !== null && <p class="notice bad wrap">{error.message}</p>}
      {dead > 0 && (
        <div>
          <button
            type="button"
            class="button small"
            aria-expanded={showsDead.value}
            onClick={() => {
              showsDead.value = !showsDead.value;
            }}
          >
            Events that were given up
          </button>
        </div>
      )}
      {showsDead.value && <DeadLetters id={id} dead={dead} />}
      {replays.value && (
        <ReplayDialog
          webhook={webhook}
          onReplay={reload}
          onClose={() => {
            replays.value = false;
          }}
        />
      )}
    </section>
  );
}

function NewWebhook({ reload }: { readonly reload: () => void }) {
  const url = useSignal('');
  const events = useSignal('');
  const after = useSignal('');
  const made = useSignal<CreatedWebhook | undefined>(undefined);
  const { busy, error, submit } = useSubmit(async () => {
    made.value = await torpor().webhooks.create({
      url: url.value.trim(),
      events: wordsIn(events.value) as EventFilter[],
      ...given({ afterPosition: numberIn(after.value) }),
    });
    url.value = '';
    reload();
  });
  return (
    <form class="panel stack" onSubmit={submit}>
      <h2>New webhook</h2>
      <div class="triple">
        <TextField
          label="Address of the receiver"
          type="url"
          required
          placeholder="https://example.com/torpor"
          value={url.value}
          onChange={(value) => {
            url.value = value;
          }}
        />
        <TextField
          label="Events"
          hint="Types or families; empty: all."
          isCode
          placeholder="sandbox.*, checkpoint.health"
          value={events.value}
          onChange={(value) => {
            events.value = value;
          }}
        />
        <NumberField
          label="After position"
          hint="Empty: only new events. 0: all of them."
          value={after.value}
          onChange={(value) => {
            after.value = value;
          }}
        />
      </div>
      {error !== undefined && <FaultNotice error={error} />}
      <div>
        <button type="submit" class="button main" disabled={busy}>
          Create the webhook
        </button>
      </div>
      {made.value !== undefined && (
        <Copyable title={`The secret for ${made.value.url}, shown only now`} text={made.value.secret} />
      )}
    </form>
  );
}
