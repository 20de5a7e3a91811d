/** Changes what a sandbox may reach, while it runs or sleeps. */
import { useSignal } from '@preact/signals';
import { put } from '../live/sandboxes.ts';
import { nameOf } from '../sandboxes/actions.ts';
import { NetworkFields } from '../sandboxes/network-fields.tsx';
import { networkDraftOf, networkOf } from '../sandboxes/network-rules.ts';
import { torpor } from '../shell/session.ts';
import { FormDialog } from '../ui/form-dialog.tsx';
import type { TabProps } from './sandbox-view.tsx';

export function NetworkDialog({ sandbox, onClose }: TabProps & { readonly onClose: () => void }) {
  const draft = useSignal(networkDraftOf(sandbox.network));
  const change = async () => {
    put([await torpor().sandboxes.setNetwork(sandbox.id, networkOf(draft.value, sandbox.network))]);
  };
  return (
    <FormDialog
      title={`Network of ${nameOf(sandbox)}`}
      action="Change the network"
      work={change}
      onClose={onClose}
    >
      <NetworkFields
        draft={draft.value}
        onChange={(next) => {
          draft.value = next;
        }}
      />
    </FormDialog>
  );
}
