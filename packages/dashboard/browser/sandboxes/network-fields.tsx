/** The fields of a network policy, in the form of a new sandbox and of one that exists. */
import { Select, TextField } from '../ui/fields.tsx';
import type { NetworkDraft, NetworkMode } from './network-rules.ts';

export interface NetworkFieldsProps {
  readonly draft: NetworkDraft;
  readonly onChange: (draft: NetworkDraft) => void;
}

export function NetworkFields({ draft, onChange }: NetworkFieldsProps) {
  const set = (change: Partial<NetworkDraft>) => onChange({ ...draft, ...change });
  return (
    <>
      <div class="pair">
        <Select
          label="Network"
          value={draft.mode}
          options={[
            ['internet', 'Public internet'],
            ['none', 'None, except the allowed'],
          ]}
          onChange={(mode) => set({ mode: mode as NetworkMode })}
        />
        <TextField
          label="Allowed hosts"
          hint="Separated by commas."
          value={draft.allow}
          disabled={draft.mode === 'internet'}
          placeholder="registry.npmjs.org"
          onChange={(allow) => set({ allow })}
        />
      </div>
      <div class="pair">
        <TextField
          label="Denied hosts"
          hint="A denial wins."
          value={draft.deny}
          onChange={(deny) => set({ deny })}
        />
        <TextField
          label="Secrets"
          hint="Names; it uses them and never sees them."
          value={draft.secrets}
          placeholder="OPENAI_API_KEY"
          isCode
          onChange={(secrets) => set({ secrets })}
        />
      </div>
    </>
  );
}
