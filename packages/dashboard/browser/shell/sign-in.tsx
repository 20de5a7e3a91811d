/** The form that signs a browser in. */
import { useSignal } from '@preact/signals';
import { BrandMark } from '../ui/brand.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { session, signIn } from './session.ts';

export function SignIn() {
  const key = useSignal('');
  const readOnly = useSignal(false);
  const busy = useSignal(false);
  const error = session.value.mode === 'signed out' ? session.value.error : undefined;
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    await signIn({ key: key.value.trim(), readOnly: readOnly.value });
    busy.value = false;
  };
  return (
    <main class="sign-in">
      <form onSubmit={submit}>
        <div class="brand">
          <BrandMark />
          <h1>Torpor</h1>
        </div>
        <div class="field">
          <label class="label" for="key">
            API key
          </label>
          <input
            type="password"
            name="key"
            id="key"
            aria-describedby="key-hint"
            autocomplete="current-password"
            required
            autofocus
            value={key}
            onInput={({ currentTarget }) => {
              key.value = currentTarget.value;
            }}
          />
          <span class="hint" id="key-hint">
            The first start prints it and stores it in <code>api-key</code> of the data directory. Or run{' '}
            <code>npx torpor page</code> for a link that signs you in.
          </span>
        </div>
        <label class="row">
          <input
            type="checkbox"
            checked={readOnly.value}
            onChange={({ currentTarget }) => {
              readOnly.value = currentTarget.checked;
            }}
          />
          Look only: see everything, change nothing
        </label>
        {error !== undefined && <FaultNotice error={error} />}
        <button type="submit" class="button main" disabled={busy.value || key.value.trim() === ''}>
          Sign in
        </button>
      </form>
    </main>
  );
}
