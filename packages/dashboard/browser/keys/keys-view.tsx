/** API keys, and for operators the organisations with their quotas. */
import { useSignal } from '@preact/signals';
import type { OrgDetails } from '@torpor/sdk';
import { canChange, identity, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { Copyable } from '../ui/copyable.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { Field, Select } from '../ui/fields.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';

export function KeysView() {
  return (
    <>
      <div class="page-head">
        <h1>Keys and organisations</h1>
      </div>
      <div class="stack">
        <Keys />
        <Organisations />
      </div>
    </>
  );
}

function Keys() {
  const { value, error, reload } = useLoaded((signal) => torpor().keys.page({ limit: 500, signal }), []);
  const revoke = async (id: string, name: string) => {
    const text = 'Programs and browsers that use it are refused from now on.';
    if (!(await confirm(`Revoke the key ${name}?`, text, 'Revoke'))) return;
    await attempt(() => torpor().keys.revoke(id), 'Revoked.');
    reload();
  };
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <section class="panel">
      <h2>Keys of {identity().org}</h2>
      <div class="scroll-x">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>For</th>
              <th>Created</th>
              <th>Ends</th>
              <th>
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
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
          </tbody>
        </table>
      </div>
      {canChange() && <NewKey reload={reload} />}
    </section>
  );
}

const ENDS: readonly (readonly [string, string])[] = [
  ['', 'Never'],
  ['86400', 'In a day'],
  ['2592000', 'In 30 days'],
  ['31536000', 'In a year'],
];

function NewKey({ reload }: { readonly reload: () => void }) {
  const name = useSignal('');
  const subject = useSignal('');
  const ends = useSignal('');
  const readOnly = useSignal(false);
  const made = useSignal<string | undefined>(undefined);
  const create = async (event: Event) => {
    event.preventDefault();
    const created = await attempt(() =>
      torpor().keys.create({
        name: name.value.trim(),
        ...(subject.value.trim() === '' ? {} : { subject: subject.value.trim() }),
        ...(readOnly.value ? { readOnly: true } : {}),
        ...(ends.value === '' ? {} : { expiresInSeconds: Number(ends.value) }),
      }),
    );
    if (created === undefined) return;
    made.value = created.key;
    name.value = '';
    reload();
  };
  return (
    <form class="stack new-key" onSubmit={create}>
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
      <label class="row">
        <input
          type="checkbox"
          checked={readOnly.value}
          onChange={({ currentTarget }) => {
            readOnly.value = currentTarget.checked;
          }}
        />
        Read-only: it sees everything and changes nothing
      </label>
      <div>
        <button type="submit" class="button">
          Create a key
        </button>
      </div>
      {made.value !== undefined && <Copyable title="The new key, shown only now" text={made.value} />}
    </form>
  );
}

function Organisations() {
  const { value, error, reload } = useLoaded(async (signal) => {
    const { items } = await torpor().orgs.page({ limit: 100, signal });
    return Promise.all(items.map(({ id }) => torpor().orgs.get(id, { signal })));
  }, []);
  const name = useSignal('');
  const create = async (event: Event) => {
    event.preventDefault();
    await attempt(() => torpor().orgs.create({ name: name.value.trim() }), 'Created.');
    name.value = '';
    reload();
  };
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <section class="panel">
      <h2>Organisations</h2>
      <div class="columns">
        {value.map((org) => (
          <Organisation key={org.id} org={org} />
        ))}
      </div>
      {identity().operator && canChange() && (
        <form class="row new-key" onSubmit={create}>
          <input
            aria-label="Name of a new organisation"
            placeholder="name of a new organisation"
            class="narrow"
            required
            pattern="[a-z0-9]([a-z0-9\-]{0,38}[a-z0-9])?"
            value={name}
            onInput={({ currentTarget: { value: text } }) => {
              name.value = text;
            }}
          />
          <button type="submit" class="button">
            Create an organisation
          </button>
        </form>
      )}
    </section>
  );
}

function Organisation({ org }: { readonly org: OrgDetails }) {
  const quotas = Object.keys(org.quotas) as (keyof OrgDetails['quotas'])[];
  return (
    <div>
      <h3>{org.id}</h3>
      <dl class="facts small">
        {quotas.map((quota) => (
          <Quota key={quota} name={quota} used={org.used[quota]} limit={org.quotas[quota]} />
        ))}
      </dl>
    </div>
  );
}

interface QuotaProps {
  readonly name: string;
  readonly used: number;
  readonly limit: number | null;
}

/** `runningSandboxes` is `running sandboxes`. */
function Quota({ name, used, limit }: QuotaProps) {
  const isNear = limit !== null && used >= limit * 0.9;
  return (
    <>
      <dt>{name.replace(/Mb$/, ' MB').replace(/[A-Z](?=[a-z])/g, (letter) => ` ${letter.toLowerCase()}`)}</dt>
      <dd class={`number${isNear ? ' warn-text' : ''}`}>
        {Math.round(used).toLocaleString()} {limit === null ? '· no limit' : `of ${limit.toLocaleString()}`}
      </dd>
    </>
  );
}
