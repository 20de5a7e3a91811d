/** Short messages about what an action did. Errors stay until they are closed. */
import { signal } from '@preact/signals';
import { type Fault, faultOf } from './fault.tsx';

interface Toast extends Fault {
  readonly id: number;
  readonly isFault: boolean;
}

const toasts = signal<readonly Toast[]>([]);
const SHOWN_MS = 5_000;
let lastId = 0;

export function say(message: string): void {
  const id = add({ message, isFault: false });
  setTimeout(() => close(id), SHOWN_MS);
}

function sayFault(error: unknown): void {
  add({ ...faultOf(error), isFault: true });
}

/** Runs an action and shows its error. Resolves with undefined when it failed. */
export async function attempt<T>(work: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await work();
    if (done !== undefined) say(done);
    return result;
  } catch (error) {
    sayFault(error);
    return undefined;
  }
}

function add(toast: Omit<Toast, 'id'>): number {
  const id = ++lastId;
  toasts.value = [...toasts.value.slice(-4), { ...toast, id }];
  return id;
}

function close(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, isFault, message, hint, requestId }) => (
        <div key={id} class={isFault ? 'toast bad' : 'toast'}>
          <p>
            <strong>{message}</strong>
          </p>
          <button type="button" class="button small plain" onClick={() => close(id)}>
            Close
          </button>
          {hint !== undefined && <p class="small">{hint}</p>}
          {requestId !== undefined && <p class="small quiet mono">{requestId}</p>}
        </div>
      ))}
    </div>
  );
}
