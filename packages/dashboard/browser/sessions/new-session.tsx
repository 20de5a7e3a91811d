/** The form of a new session: a key of the caller's own, and the program that answers. */
import { useSignal } from '@preact/signals';
import { go } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { Select, TextField } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { given, textIn } from '../ui/form-values.ts';

export function NewSession({ onClose }: { readonly onClose: () => void }) {
  const key = useSignal('');
  const command = useSignal('');
  const mode = useSignal<'turn' | 'service'>('turn');
  const template = useSignal('');
  const create = async () => {
    const { id } = await torpor().sessions.getOrSpawn(key.value.trim(), {
      program: { command: command.value, mode: mode.value },
      sandbox: given({ template: textIn(template.value) }),
    });
    go('sessions', id);
  };
  return (
    <FormDialog
      title="New session"
      action="Create the session"
      busyAction="Creating its sandbox…"
      work={create}
      onClose={onClose}
    >
      <TextField
        label="Key"
        hint="Your own name for the conversation. A key that exists opens its session."
        required
        pattern="[!-~]{1,200}"
        value={key.value}
        onChange={(value) => {
          key.value = value;
        }}
      />
      <TextField
        label="Program"
        hint="Gets each message on its standard input, and answers on its standard output."
        required
        isCode
        placeholder="cat"
        value={command.value}
        onChange={(value) => {
          command.value = value;
        }}
      />
      <div class="pair">
        <Select
          label="It runs"
          value={mode.value}
          options={[
            ['turn', 'Once for each message'],
            ['service', 'All the time, one line of JSON a message'],
          ]}
          onChange={(value) => {
            mode.value = value as 'turn' | 'service';
          }}
        />
        <TextField
          label="Template of its sandbox"
          placeholder="base"
          value={template.value}
          onChange={(value) => {
            template.value = value;
          }}
        />
      </div>
    </FormDialog>
  );
}
