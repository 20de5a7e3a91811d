/** Text with a button that copies it. */
import { useSignal } from '@preact/signals';
import { attempt } from './toasts.tsx';

const SHOWN_MS = 2_000;

/** Browsers offer the clipboard only on this machine and over HTTPS; elsewhere they copy what is selected. */
async function copy(text: string): Promise<true> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
    return true;
  }
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  if (!isCopied) throw new Error('The browser did not copy the text. Select it and copy it by hand.');
  return true;
}

export function Copyable({ title, text }: { readonly title: string; readonly text: string }) {
  const isCopied = useSignal(false);
  const press = async () => {
    if ((await attempt(() => copy(text))) === undefined) return;
    isCopied.value = true;
    setTimeout(() => {
      isCopied.value = false;
    }, SHOWN_MS);
  };
  return (
    <section>
      <h3 class="copyable-title">{title}</h3>
      <div class="copyable">
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll it */}
        <pre tabIndex={0}>{text}</pre>
        <button type="button" class="button small" onClick={() => void press()}>
          {isCopied.value ? 'Copied' : 'Copy'}
          <span class="unseen"> {title}</span>
        </button>
      </div>
    </section>
  );
}
