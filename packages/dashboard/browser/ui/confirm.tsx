/** Asks before something that cannot be undone. */
import { signal } from '@preact/signals';
import { Dialog } from './dialog.tsx';

interface Question {
  readonly title: string;
  readonly text: string;
  readonly yes: string;
  readonly answer: (isYes: boolean) => void;
}

const question = signal<Question | undefined>(undefined);

export function confirm(title: string, text: string, yes: string): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = {
      title,
      text,
      yes,
      answer: (isYes) => {
        question.value = undefined;
        resolve(isYes);
      },
    };
  });
}

export function Confirmation() {
  const asked = question.value;
  if (asked === undefined) return null;
  return (
    <Dialog title={asked.title} onClose={() => asked.answer(false)}>
      <div class="dialog-body">
        <p>{asked.text}</p>
      </div>
      <div class="dialog-foot">
        <button type="button" class="button" onClick={() => asked.answer(false)}>
          Cancel
        </button>
        <button type="button" class="button danger" onClick={() => asked.answer(true)}>
          {asked.yes}
        </button>
      </div>
    </Dialog>
  );
}
