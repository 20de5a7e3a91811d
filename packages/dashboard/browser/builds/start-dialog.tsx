/** Starts a build from a goal, or one that continues another. */
import { useSignal } from '@preact/signals';
import type { BuildStatus } from '@torpor/sdk';
import { go } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { Field, TextField } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';

interface StartDialogProps {
  /** A ready build that the new build continues. */
  readonly previous?: BuildStatus;
  readonly onClose: () => void;
}

export function StartDialog({ previous, onClose }: StartDialogProps) {
  const goal = useSignal('');
  const project = useSignal(previous?.project_id ?? 'page');
  const start = async () => {
    const started = await torpor().builds.start({
      project_id: project.value.trim(),
      goal: goal.value.trim(),
      ...(previous === undefined ? {} : { previous_job_id: previous.job_id, runner: previous.runner }),
    });
    go('builds', started.job_id);
  };
  return (
    <FormDialog
      title={previous === undefined ? 'New build' : 'Change the app'}
      action="Build"
      work={start}
      onClose={onClose}
    >
      <Field label="Goal" hint={previous === undefined ? 'What the app should be.' : 'What should change.'}>
        <textarea
          rows={4}
          required
          value={goal}
          onInput={({ currentTarget: { value } }) => {
            goal.value = value;
          }}
        />
      </Field>
      {previous === undefined && (
        <TextField
          label="Project"
          hint="Builds of one project have versions."
          required
          pattern="[A-Za-z0-9][A-Za-z0-9._:\-]*"
          value={project.value}
          onChange={(value) => {
            project.value = value;
          }}
        />
      )}
    </FormDialog>
  );
}
