/** Changes the quotas and the retention of an organisation. */
import { useSignal } from '@preact/signals';
import type { OrgDetails } from '@torpor/sdk';
import { torpor } from '../shell/session.ts';
import { Dialog } from '../ui/dialog.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { NumberField, Select } from '../ui/fields.tsx';
import { type Retention, retentionText } from '../ui/retention.ts';
import { quotaChangeOf, quotaDraftOf, quotaNames, quotaTitle } from './quota-draft.ts';

const DAY = 86_400;
const SPANS: readonly Retention[] = ['default', DAY, 7 * DAY, 30 * DAY, 90 * DAY, null];

interface OrgDialogProps {
  readonly org: OrgDetails;
  readonly onChange: () => void;
  readonly onClose: () => void;
}

export function OrgDialog({ org, onChange, onClose }: OrgDialogProps) {
  const { id, quotas, deletePausedAfterSeconds } = org;
  const draft = useSignal(quotaDraftOf(quotas));
  const retention = useSignal<Retention>(deletePausedAfterSeconds);
  const error = useSignal<unknown>(undefined);
  const spans = SPANS.includes(deletePausedAfterSeconds) ? SPANS : [deletePausedAfterSeconds, ...SPANS];
  const submit = async (event: Event) => {
    event.preventDefault();
    const change = quotaChangeOf(draft.value, quotas);
    try {
      if (Object.keys(change).length > 0) await torpor().orgs.setQuotas(id, change);
      if (retention.value !== deletePausedAfterSeconds) await torpor().orgs.setRetention(id, retention.value);
      onClose();
    } catch (thrown) {
      error.value = thrown;
    }
    onChange();
  };
  return (
    <Dialog title={`Limits of ${id}`} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          <p class="quiet">An empty field is no limit.</p>
          <div class="triple">
            {quotaNames(quotas).map((name) => (
              <NumberField
                key={name}
                label={quotaTitle(name)}
                value={draft.value[name]}
                onChange={(value) => {
                  draft.value = { ...draft.value, [name]: value };
                }}
              />
            ))}
          </div>
          <Select
            label="Sleeping sandboxes that nobody uses are kept"
            value={String(retention.value)}
            options={spans.map((span) => [String(span), retentionText(span)] as const)}
            onChange={(text) => {
              retention.value = spans.find((span) => String(span) === text) ?? null;
            }}
          />
          {error.value !== undefined && <FaultNotice error={error.value} />}
        </div>
        <div class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button main">
            Change the limits
          </button>
        </div>
      </form>
    </Dialog>
  );
}
