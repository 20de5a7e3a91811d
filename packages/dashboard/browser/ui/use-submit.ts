/** What a form does with its button: it works once at a time, and keeps the error of the last try. */
import { useSignal } from '@preact/signals';

export interface Submit {
  readonly busy: boolean;
  /** Undefined when the last try succeeded. The form shows it beside its fields. */
  readonly error: unknown;
  readonly submit: (event: Event) => Promise<void>;
}

export function useSubmit(work: () => Promise<void>): Submit {
  const busy = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy.value) return;
    busy.value = true;
    try {
      await work();
      error.value = undefined;
    } catch (thrown) {
      error.value = thrown;
    }
    busy.value = false;
  };
  return { busy: busy.value, error: error.value, submit };
}
