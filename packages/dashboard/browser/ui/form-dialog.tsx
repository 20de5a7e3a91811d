/** A dialog with a form. It stays open until its work has succeeded, and shows the error of a try that failed. */
import { Dialog, type DialogProps } from './dialog.tsx';
import { FaultNotice } from './fault.tsx';
import { useSubmit } from './use-submit.ts';

export interface FormDialogProps extends DialogProps {
  /** What the button says. */
  readonly action: string;
  /** What the button says during the work. */
  readonly busyAction?: string;
  /** The dialog is closed when the work has succeeded. */
  readonly work: () => Promise<void>;
}

export function FormDialog({ title, onClose, children, action, busyAction, work }: FormDialogProps) {
  const { busy, error, submit } = useSubmit(async () => {
    await work();
    onClose();
  });
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          {children}
          {error !== undefined && <FaultNotice error={error} />}
        </div>
        <div class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button main" disabled={busy}>
            {busy ? (busyAction ?? action) : action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
