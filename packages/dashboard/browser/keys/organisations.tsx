/** Organisations with their quotas and usage. Operators create, limit and delete them; other keys see their own. */
import { useSignal } from '@preact/signals';
import type { OrgDetails } from '@torpor/sdk';
import { canChange, identity, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { retentionText } from '../ui/retention.ts';
import { attempt, say } from '../ui/toasts.tsx';
import { useLoaded } from '../ui/use-loaded.ts';
import { useSubmit } from '../ui/use-submit.ts';
import { OrgDialog } from './org-dialog.tsx';
import { type QuotaName, quotaNames, quotaTitle } from './quota-draft.ts';

interface OrganisationsProps {
  /** The organisation whose keys are shown. */
  readonly shown: string;
  readonly show: (org: string) => void;
}

export function Organisations({ shown, show }: OrganisationsProps) {
  const { value, error, reload } = useLoaded(async (signal) => {
    const { items } = await torpor().orgs.page({ limit: 100, signal });
    return Promise.all(items.map(({ id }) => torpor().orgs.get(id, { signal })));
  }, []);
  const name = useSignal('');
  const form = useSubmit(async () => {
    const made = await torpor().orgs.create({ name: name.value.trim() });
    say('Created.');
    name.value = '';
    show(made.id);
    reload();
  });
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <section class="panel">
      <h2>Organisations</h2>
      <div class="columns">
        {value.map((org) => (
          <Organisation key={org.id} org={org} isShown={org.id === shown} show={show} reload={reload} />
        ))}
      </div>
      {identity().operator && canChange() && (
        <form class="row new-key" onSubmit={form.submit}>
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
          <button type="submit" class="button" disabled={form.busy}>
            Create an organisation
          </button>
          {form.error !== undefined && <FaultNotice error={form.error} />}
        </form>
      )}
    </section>
  );
}

interface OrganisationProps {
  readonly org: OrgDetails;
  readonly isShown: boolean;
  readonly show: (org: string) => void;
  readonly reload: () => void;
}

function Organisation({ org, isShown, show, reload }: OrganisationProps) {
  const { id, quotas, used, deletePausedAfterSeconds } = org;
  const isOpen = useSignal(false);
  const remove = async () => {
    const text = 'It must be empty. Its name can never be taken again.';
    if (!(await confirm(`Delete the organisation ${id}?`, text, 'Delete'))) return;
    if ((await attempt(() => torpor().orgs.delete(id), 'Deleted.')) !== undefined && isShown)
      show(identity().org);
    reload();
  };
  return (
    <div>
      <h3>{id}</h3>
      <dl class="facts small">
        {quotaNames(quotas).map((quota) => (
          <Quota key={quota} name={quota} used={used[quota]} limit={quotas[quota]} />
        ))}
        <dt>sleeping sandboxes are kept</dt>
        <dd>{retentionText(deletePausedAfterSeconds)}</dd>
      </dl>
      {identity().operator && (
        <div class="row org-actions">
          {!isShown && (
            <button type="button" class="button small" onClick={() => show(id)}>
              Show its keys<span class="unseen">: {id}</span>
            </button>
          )}
          {canChange() && (
            <button
              type="button"
              class="button small"
              onClick={() => {
                isOpen.value = true;
              }}
            >
              Change the limits…<span class="unseen"> of {id}</span>
            </button>
          )}
          {canChange() && id !== identity().org && (
            <button type="button" class="button small danger" onClick={() => void remove()}>
              Delete<span class="unseen"> {id}</span>
            </button>
          )}
        </div>
      )}
      {isOpen.value && (
        <OrgDialog
          org={org}
          onChange={reload}
          onClose={() => {
            isOpen.value = false;
          }}
        />
      )}
    </div>
  );
}

interface QuotaProps {
  readonly name: QuotaName;
  readonly used: number;
  readonly limit: number | null;
}

function Quota({ name, used, limit }: QuotaProps) {
  const isNear = limit !== null && used >= limit * 0.9;
  return (
    <>
      <dt>{quotaTitle(name)}</dt>
      <dd class={`number${isNear ? ' warn-text' : ''}`}>
        {Math.round(used).toLocaleString()} {limit === null ? '· no limit' : `of ${limit.toLocaleString()}`}
      </dd>
    </>
  );
}
