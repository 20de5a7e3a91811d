/** Changes what a sandbox may reach, while it runs or sleeps. */
import { useSignal } from '@preact/signals';
import { put } from '../live/sandboxes.ts';
import { nameOf } from '../sandboxes/actions.ts';
import { NetworkFields } from '../sandboxes/network-fields.tsx';
import { networkDraftOf, networkOf } from '../sandboxes/network-rules.ts';
import { torpor } from '../shell/session.ts';
import { Dialog } from '../ui/dialog.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import type { TabProps } from './sandbox-view.tsx';

export function NetworkDialog({ sandbox, onClose }: TabProps & { readonly onClose: () => void }) {
  const draft = useSignal(networkDraftOf(sandbox.network));
  const error = useSignal<unknown>(undefined);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      put([await torpor().sandboxes.setNetwork(sandbox.id, networkOf(draft.value, sandbox.network))]);
      onClose();
    } catch (thrown) {
      error.value = thrown;
    }
  };
  return (
    <Dialog title={`Network of ${nameOf(sandbox)}`} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          <NetworkFields
            draft={draft.value}
            onChange={(next) => {
              draft.value = next;
            }}
          />
          {error.value !== undefined && <FaultNotice error={error.value} />}
        </div>
        <div class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button main">
            Change the network
          </button>
        </div>
      </form>
    </Dialog>
  );
}
