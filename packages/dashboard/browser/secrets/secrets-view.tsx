/** Secrets: keys that sandboxes use and never see. No answer of the server has a value, so none is shown here. */
import { useSignal } from '@preact/signals';
import type { SecretView } from '@torpor/sdk';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { TextField } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { ListView } from '../ui/list-view.tsx';
import { Table } from '../ui/table.tsx';
import { attempt, say } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import {
  draftOfSecret,
  EMPTY_SECRET,
  requestsText,
  type SecretDraft,
  secretRequestOf,
} from './secret-request.ts';

export function SecretsView() {
  const secrets = useLoaded((signal) => torpor().secrets.page({ limit: 500, signal }), []);
  /** The secret that the open form sets. */
  const form = useSignal<SecretDraft | undefined>(undefined);
  const open = (draft: SecretDraft) => () => {
    form.value = draft;
  };
  const remove = async (name: string) => {
    const text = 'Sandboxes that use it go on without it, from their next request.';
    if (!(await confirm(`Delete the secret ${name}?`, text, 'Delete'))) return;
    await attempt(() => torpor().secrets.delete(name), 'Deleted.');
    secrets.reload();
  };
  return (
    <>
      <ListView
        title="Secrets"
        loaded={secrets}
        beside={
          canChange() && (
            <button type="button" class="button main push" onClick={open(EMPTY_SECRET)}>
              New secret
            </button>
          )
        }
      >
        {({ items }) =>
          items.length === 0 ? (
            <div class="empty">
              <h2>No secrets yet</h2>
              <p class="quiet">
                A secret is a key that a sandbox can use and cannot see. The server puts it into requests to
                one host, on their way out, so code in the sandbox finds nothing to steal.
              </p>
              <pre class="panel">
                npx torpor secret set OPENAI_API_KEY --host api.openai.com --header Authorization --prefix
                "Bearer "
              </pre>
            </div>
          ) : (
            <div class="stack">
              <div class="panel">
                <Table columns={['Name', 'Host', 'Header', 'Requests', 'Set']} hasActions>
                  {items.map((secret) => (
                    <Row
                      key={secret.name}
                      secret={secret}
                      replace={open(draftOfSecret(secret))}
                      remove={remove}
                    />
                  ))}
                </Table>
              </div>
              <p class="quiet small">
                A sandbox uses the secrets that its network names: in the form of a new sandbox, or under
                “Change the network” of one that exists.
              </p>
            </div>
          )
        }
      </ListView>
      {form.value !== undefined && (
        <SecretDialog
          initial={form.value}
          onSet={secrets.reload}
          onClose={() => {
            form.value = undefined;
          }}
        />
      )}
    </>
  );
}

interface RowProps {
  readonly secret: SecretView;
  readonly replace: () => void;
  readonly remove: (name: string) => Promise<void>;
}

function Row({ secret, replace, remove }: RowProps) {
  const { name, host, header, prefix, updatedAt } = secret;
  return (
    <tr>
      <td class="mono wrap">
        <strong>{name}</strong>
      </td>
      <td class="mono wrap">{host}</td>
      <td class="mono wrap">
        {header}: {prefix}
        <span class="quiet">…</span>
      </td>
      <td>{requestsText(secret)}</td>
      <td class="number">{clockTime(updatedAt)}</td>
      <td class="act">
        {canChange() && (
          <>
            <button type="button" class="button small" onClick={replace}>
              Replace…<span class="unseen"> {name}</span>
            </button>{' '}
            <button type="button" class="button small danger" onClick={() => void remove(name)}>
              Delete<span class="unseen"> {name}</span>
            </button>
          </>
        )}
      </td>
    </tr>
  );
}

interface SecretDialogProps {
  readonly initial: SecretDraft;
  readonly onSet: () => void;
  readonly onClose: () => void;
}

function SecretDialog({ initial, onSet, onClose }: SecretDialogProps) {
  const draft = useSignal(initial);
  const isNew = initial.name === '';
  const set = (change: Partial<SecretDraft>) => {
    draft.value = { ...draft.value, ...change };
  };
  const store = async () => {
    const name = draft.value.name.trim();
    await torpor().secrets.set(name, secretRequestOf(draft.value));
    say(`${name} is set.`);
    onSet();
  };
  const { name, host, header, prefix, value, methods, path } = draft.value;
  return (
    <FormDialog
      title={isNew ? 'New secret' : `Replace ${initial.name}`}
      action="Set the secret"
      work={store}
      onClose={onClose}
    >
      {isNew && (
        <TextField
          label="Name"
          hint="Letters, digits and underscore, such as OPENAI_API_KEY."
          required
          pattern="[A-Za-z_][A-Za-z0-9_]{0,127}"
          isCode
          value={name}
          onChange={(next) => set({ name: next })}
        />
      )}
      <TextField
        label="Host"
        hint="Only this host gets it, over TLS: api.example.com, or *.example.com."
        required
        isCode
        placeholder="api.openai.com"
        value={host}
        onChange={(next) => set({ host: next })}
      />
      <div class="pair">
        <TextField label="Header" required isCode value={header} onChange={(next) => set({ header: next })} />
        <TextField
          label="Before the value"
          hint="A space at the end counts."
          isCode
          value={prefix}
          onChange={(next) => set({ prefix: next })}
        />
      </div>
      <TextField
        label="Value"
        hint="No answer of the server contains it."
        type="password"
        required
        value={value}
        onChange={(next) => set({ value: next })}
      />
      <div class="pair">
        <TextField
          label="Only methods"
          hint="Empty: all."
          placeholder="GET, POST"
          isCode
          value={methods}
          onChange={(next) => set({ methods: next })}
        />
        <TextField
          label="Only the path"
          hint="And everything below it. Empty: all."
          placeholder="/v1"
          isCode
          value={path}
          onChange={(next) => set({ path: next })}
        />
      </div>
    </FormDialog>
  );
}
