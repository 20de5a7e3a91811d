/** Changes the quotas and the retention of an organisation. */
import { useSignal } from '@preact/signals';
import type { OrgDetails } from '@torpor/sdk';
import { torpor } from '../shell/session.ts';
import { NumberField, Select } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
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
  const spans = SPANS.includes(deletePausedAfterSeconds) ? SPANS : [deletePausedAfterSeconds, ...SPANS];
  const store = async () => {
    const change = quotaChangeOf(draft.value, quotas);
    try {
      if (Object.keys(change).length > 0) await torpor().orgs.setQuotas(id, change);
      if (retention.value !== deletePausedAfterSeconds) await torpor().orgs.setRetention(id, retention.value);
    } finally {
      // The first of the two may have been stored.
      onChange();
    }
  };
  return (
    <FormDialog title={`Limits of ${id}`} action="Change the limits" work={store} onClose={onClose}>
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
    </FormDialog>
  );
}
