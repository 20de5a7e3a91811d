/** What happened while a template was prepared, as it happens. */
import { plainText } from '../sandbox/plain-text.ts';
import { torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { clockTime } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';

export const PREPARING_EVERY_MS = 1_000;

export function TemplateLog({ name }: { readonly name: string }) {
  const { value, error, reload } = useLoaded((signal) => torpor().templates.log(name, { signal }), [name]);
  useEvery(PREPARING_EVERY_MS, reload);
  if (error !== undefined && value === undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <section class="panel" aria-label={`Log of ${name}`}>
      <h2>Log of {name}</h2>
      {value.length === 0 ? (
        <p class="quiet">It was not prepared since the server started.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll it
        <pre class="template-log" tabIndex={0}>
          {value.map(({ at, text }, index) => (
            <div key={index}>
              <span class="quiet">{clockTime(at)} </span>
              {plainText(text)}
            </div>
          ))}
        </pre>
      )}
    </section>
  );
}
