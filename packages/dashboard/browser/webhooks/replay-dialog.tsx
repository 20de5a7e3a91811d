/** Asks from which position of the ledger on events are sent again. */
import { useSignal } from '@preact/signals';
import type { WebhookView } from '@torpor/sdk';
import { torpor } from '../shell/session.ts';
import { NumberField } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { say } from '../ui/toasts.tsx';

interface ReplayDialogProps {
  readonly webhook: WebhookView;
  readonly onReplay: () => void;
  readonly onClose: () => void;
}

export function ReplayDialog({ webhook: { id, url, position }, onReplay, onClose }: ReplayDialogProps) {
  const from = useSignal('');
  const replay = async () => {
    await torpor().webhooks.replay(id, Number(from.value));
    say(`Events from position ${from.value} on are sent again.`);
    onReplay();
  };
  return (
    <FormDialog title="Send events again" action="Replay" work={replay} onClose={onClose}>
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
    </FormDialog>
  );
}
