/** Secrets: keys that sandboxes use and never see. No answer of the server has a value, so none is shown here. */
import { useSignal } from '@preact/signals';
import type { SecretView } from '@torpor/sdk';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { TextField } from '../ui/fields.tsx';
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
  const { value, error, reload } = useLoaded((signal) => torpor().secrets.page({ limit: 500, signal }), []);
  /** The secret that the open form sets. */
  const form = useSignal<SecretDraft | undefined>(undefined);
  const open = (draft: SecretDraft) => () => {
    form.value = draft;
  };
  const remove = async (name: string) => {
    const text = 'Sandboxes that use it go on without it, from their next request.';
    if (!(await confirm(`Delete the secret ${name}?`, text, 'Delete'))) return;
    await attempt(() => torpor().secrets.delete(name), 'Deleted.');
    reload();
  };
  return (
    <>
      <div class="page-head">
        <h1>Secrets</h1>
        {canChange() && (
          <button type="button" class="button main push" onClick={open(EMPTY_SECRET)}>
            New secret
          </button>
        )}
      </div>
      {error !== undefined && <FaultNotice error={error} retry={reload} />}
      {value?.items.length === 0 && (
        <div class="empty">
          <h2>No secrets yet</h2>
          <p class="quiet">
            A secret is a key that a sandbox can use and cannot see. The server puts it into requests to one
            host, on their way out, so code in the sandbox finds nothing to steal.
          </p>
          <pre class="panel">
            npx torpor secret set OPENAI_API_KEY --host api.openai.com --header Authorization --prefix "Bearer
            "
          </pre>
        </div>
      )}
      {value !== undefined && value.items.length > 0 && (
        <div class="stack">
          <div class="panel scroll-x">
            <table>
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Host</th>
                  <th>Header</th>
                  <th>Requests</th>
                  <th>Set</th>
                  <th>
                    <span class="unseen">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {value.items.map((secret) => (
                  <Row
                    key={secret.name}
                    secret={secret}
                    replace={open(draftOfSecret(secret))}
                    remove={remove}
                  />
                ))}
              </tbody>
            </table>
          </div>
          <p class="quiet small">
            A sandbox uses the secrets that its network names: in the form of a new sandbox, or under “Change
            the network” of one that exists.
          </p>
        </div>
      )}
      {form.value !== undefined && (
        <SecretDialog
          initial={form.value}
          onSet={reload}
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
      <td class="mono">
        <strong>{name}</strong>
      </td>
      <td class="mono">{host}</td>
      <td class="mono">
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
  const error = useSignal<unknown>(undefined);
  const isNew = initial.name === '';
  const set = (change: Partial<SecretDraft>) => {
    draft.value = { ...draft.value, ...change };
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    const name = draft.value.name.trim();
    try {
      await torpor().secrets.set(name, secretRequestOf(draft.value));
      say(`${name} is set.`);
      onSet();
      onClose();
    } catch (thrown) {
      error.value = thrown;
    }
  };
  const { name, host, header, prefix, value, methods, path } = draft.value;
  return (
    <Dialog title={isNew ? 'New secret' : `Replace ${initial.name}`} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
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
            <TextField
              label="Header"
              required
              isCode
              value={header}
              onChange={(next) => set({ header: next })}
            />
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
          {error.value !== undefined && <FaultNotice error={error.value} />}
        </div>
        <div class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button main">
            Set the secret
          </button>
        </div>
      </form>
    </Dialog>
  );
}
