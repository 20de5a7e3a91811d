/** API keys, and for operators the organisations with their quotas. */
import { useSignal } from '@preact/signals';
import { canChange, identity, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { Copyable } from '../ui/copyable.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { CheckField, Field, Select } from '../ui/fields.tsx';
import { given, numberIn, textIn } from '../ui/form-values.ts';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { useSubmit } from '../ui/use-submit.ts';
import { Organisations } from './organisations.tsx';

export function KeysView() {
  /** The organisation whose keys are shown. Operators may choose another one than their own. */
  const org = useSignal(identity().org);
  return (
    <>
      <div class="page-head">
        <h1>Keys and organisations</h1>
      </div>
      <div class="stack">
        <Keys key={org.value} org={org.value} />
        <Organisations
          shown={org.value}
          show={(chosen) => {
            org.value = chosen;
          }}
        />
      </div>
    </>
  );
}

interface OfOrg {
  readonly org: string;
}

/** Only operators may name an organisation. */
function orgIdOf({ org }: OfOrg): { readonly orgId?: string } {
  return org === identity().org ? {} : { orgId: org };
}

function Keys({ org }: OfOrg) {
  const of = orgIdOf({ org });
  const { value, error, reload } = useLoaded(
    (signal) => torpor().keys.page({ limit: 500, signal, ...of }),
    [],
  );
  const revoke = async (id: string, name: string) => {
    const text = 'Programs and browsers that use it are refused from now on.';
    if (!(await confirm(`Revoke the key ${name}?`, text, 'Revoke'))) return;
    await attempt(() => torpor().keys.revoke(id, of), 'Revoked.');
    reload();
  };
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <section class="panel">
      <h2>Keys of {org}</h2>
      <Table columns={['Name', 'For', 'Created', 'Ends']} hasActions>
        {value.items.map((key) => (
          <tr key={key.id}>
            <td>
              <strong>{key.name}</strong>{' '}
              {key.id === identity().keyId && <span class="tag">this browser</span>}
              <div class="mono quiet">{key.id}</div>
            </td>
            <td>
              {key.operator ? 'operator' : (key.subject ?? 'service')}
              {key.readOnly && <span class="tag">read-only</span>}
            </td>
            <td class="number">{clockTime(key.createdAt)}</td>
            <td class="number">
              {key.revokedAt !== null ? (
                <span class="tag">revoked</span>
              ) : key.expiresAt === null ? (
                'never'
              ) : (
                clockTime(key.expiresAt)
              )}
            </td>
            <td class="act">
              {key.revokedAt === null && canChange() && (
                <button
                  type="button"
                  class="button small danger"
                  onClick={() => void revoke(key.id, key.name)}
                >
                  Revoke<span class="unseen"> {key.name}</span>
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      {canChange() && <NewKey org={org} reload={reload} />}
    </section>
  );
}

const ENDS: readonly (readonly [string, string])[] = [
  ['', 'Never'],
  ['86400', 'In a day'],
  ['2592000', 'In 30 days'],
  ['31536000', 'In a year'],
];

function NewKey({ org, reload }: OfOrg & { readonly reload: () => void }) {
  const name = useSignal('');
  const subject = useSignal('');
  const ends = useSignal('');
  const readOnly = useSignal(false);
  const operator = useSignal(false);
  const made = useSignal<string | undefined>(undefined);
  const { busy, error, submit } = useSubmit(async () => {
    const request = given({
      subject: textIn(subject.value),
      readOnly: readOnly.value || undefined,
      operator: operator.value || undefined,
      expiresInSeconds: numberIn(ends.value),
    });
    const created = await torpor().keys.create({ name: name.value.trim(), ...request }, orgIdOf({ org }));
    made.value = created.key;
    name.value = '';
    reload();
  });
  return (
    <form class="stack new-key" onSubmit={submit}>
      <div class="triple">
        <Field label="Name of a new key">
          <input
            required
            maxLength={128}
            value={name}
            onInput={({ currentTarget: { value } }) => {
              name.value = value;
            }}
          />
        </Field>
        <Field label="User" hint="Empty: a service key, which may act for any user.">
          <input
            value={subject}
            onInput={({ currentTarget: { value } }) => {
              subject.value = value;
            }}
          />
        </Field>
        <Select
          label="Ends"
          value={ends.value}
          options={ENDS}
          onChange={(value) => {
            ends.value = value;
          }}
        />
      </div>
      <CheckField
        label="Read-only: it sees everything and changes nothing"
        checked={readOnly.value}
        onChange={(checked) => {
          readOnly.value = checked;
        }}
      />
      {identity().operator && org === identity().org && (
        <CheckField
          label="Operator: it manages organisations, nodes and the server"
          checked={operator.value}
          onChange={(checked) => {
            operator.value = checked;
          }}
        />
      )}
      {error !== undefined && <FaultNotice error={error} />}
      <div>
        <button type="submit" class="button" disabled={busy}>
          Create a key
        </button>
      </div>
      {made.value !== undefined && <Copyable title="The new key, shown only now" text={made.value} />}
    </form>
  );
}
