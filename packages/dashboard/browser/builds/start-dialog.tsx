/** Starts a build from a goal, or one that continues another. */
import { useSignal } from '@preact/signals';
import type { BuildStatus } from '@torpor/sdk';
import { go } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Field, TextField } from '../ui/fields.tsx';
import { attempt } from '../ui/toasts.tsx';

interface StartDialogProps {
  /** A ready build that the new build continues. */
  readonly previous?: BuildStatus;
  readonly onClose: () => void;
}

export function StartDialog({ previous, onClose }: StartDialogProps) {
  const goal = useSignal('');
  const project = useSignal(previous?.project_id ?? 'page');
  const submit = async (event: Event) => {
    event.preventDefault();
    const started = await attempt(() =>
      torpor().builds.start({
        project_id: project.value.trim(),
        goal: goal.value.trim(),
        ...(previous === undefined ? {} : { previous_job_id: previous.job_id, runner: previous.runner }),
      }),
    );
    if (started === undefined) return;
    onClose();
    go('builds', started.job_id);
  };
  return (
    <Dialog title={previous === undefined ? 'New build' : 'Change the app'} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          <Field
            label="Goal"
            hint={previous === undefined ? 'What the app should be.' : 'What should change.'}
          >
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
        </div>
        <div class="dialog-foot">
          <button type="submit" class="button main">
            Build
          </button>
        </div>
      </form>
    </Dialog>
  );
}
