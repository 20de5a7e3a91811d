/** Asks from which position of the ledger on events are sent again. */
import { useSignal } from '@preact/signals';
import type { WebhookView } from '@torpor/sdk';
import { torpor } from '../shell/session.ts';
import { Dialog } from '../ui/dialog.tsx';
import { NumberField } from '../ui/fields.tsx';
import { attempt } from '../ui/toasts.tsx';

interface ReplayDialogProps {
  readonly webhook: WebhookView;
  readonly onReplay: () => void;
  readonly onClose: () => void;
}

export function ReplayDialog({ webhook: { id, url, position }, onReplay, onClose }: ReplayDialogProps) {
  const from = useSignal('');
  const submit = async (event: Event) => {
    event.preventDefault();
    onClose();
    const text = `Events from position ${from.value} on are sent again.`;
    await attempt(() => torpor().webhooks.replay(id, Number(from.value)), text);
    onReplay();
  };
  return (
    <Dialog title="Send events again" onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          <p class="quiet wrap">
            {url} gets every event from this position on again, in order, with those that were given up. A
            receiver that remembers the last position of each sandbox ignores what it has.
          </p>
          <NumberField
            label="From position"
            hint={`It has read up to ${position}. The audit shows the position of each event.`}
            required
            value={from.value}
            onChange={(value) => {
              from.value = value;
            }}
          />
        </div>
        <div class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button main">
            Replay
          </button>
        </div>
      </form>
    </Dialog>
  );
}
