/** The keys of the page, shown by `?`. */
import { signal } from '@preact/signals';
import { Fragment } from 'preact';
import { Dialog } from '../ui/dialog.tsx';
import { go } from './router.ts';

export const isHelpOpen = signal(false);

const KEYS: readonly (readonly [keys: readonly string[], meaning: string])[] = [
  [['?'], 'show this'],
  [['g', 'o'], 'overview'],
  [['g', 's'], 'sandboxes'],
  [['g', 'b'], 'builds'],
  [['/'], 'filter the list of sandboxes; Escape clears it'],
  [['c'], 'create a sandbox'],
  [['j', 'k'], 'next and previous row, as the arrows'],
  [['Enter'], 'open the row'],
  [['x'], 'select the row'],
  [['p'], 'pause the sandbox of the row'],
  [['w'], 'wake the sandbox of the row'],
];

const SECTIONS: Readonly<Record<string, readonly string[]>> = { o: [], s: ['sandboxes'], b: ['builds'] };
/** A second key later than this does not belong to the first. */
const SECOND_KEY_MS = 1_500;

/** Handles the keys that work in every view. Returns a function that ends it. */
export function followKeys(): () => void {
  let goAt = 0;
  const onKey = (event: KeyboardEvent) => {
    if (event.target instanceof Element && event.target.closest('input, textarea, select, dialog, .xterm'))
      return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const section = event.timeStamp - goAt < SECOND_KEY_MS ? SECTIONS[event.key] : undefined;
    goAt = event.key === 'g' ? event.timeStamp : 0;
    if (section !== undefined) go(...section);
    else if (event.key === '?') isHelpOpen.value = true;
    else return;
    event.preventDefault();
  };
  addEventListener('keydown', onKey);
  return () => removeEventListener('keydown', onKey);
}

export function KeyboardHelp() {
  if (!isHelpOpen.value) return null;
  return (
    <Dialog
      title="Keyboard"
      onClose={() => {
        isHelpOpen.value = false;
      }}
    >
      <div class="dialog-body">
        <dl class="facts keys">
          {KEYS.map(([keys, meaning]) => (
            <Fragment key={meaning}>
              <dt>
                {keys.map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </dt>
              <dd>{meaning}</dd>
            </Fragment>
          ))}
        </dl>
      </div>
    </Dialog>
  );
}
