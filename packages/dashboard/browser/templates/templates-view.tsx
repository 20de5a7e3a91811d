/** Templates: the named checkpoints that sandboxes are created from. */
import { useSignal } from '@preact/signals';
import type { CheckpointId } from '@torpor/sdk';
import { useEffect } from 'preact/hooks';
import { plainText } from '../sandbox/plain-text.ts';
import { canChange, identity, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { Field } from '../ui/fields.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';

const PREPARING_EVERY_MS = 1_000;

export function TemplatesView() {
  const { value, error, reload } = useLoaded((signal) => torpor().templates.page({ limit: 500, signal }), []);
  const name = useSignal('');
  const from = useSignal('');
  const logOf = useSignal<string | undefined>(undefined);
  const create = async (event: Event) => {
    event.preventDefault();
    const request = { name: name.value.trim(), from: from.value.trim() as CheckpointId };
    if ((await attempt(() => torpor().templates.create(request), 'The template is ready.')) === undefined)
      return;
    name.value = '';
    from.value = '';
    reload();
  };
  const isPreparing =
    value?.items.some(({ phase, state }) => phase !== null || state === 'preparing') ?? false;
  useEffect(() => {
    if (!isPreparing) return undefined;
    const timer = setInterval(reload, PREPARING_EVERY_MS);
    return () => clearInterval(timer);
  }, [isPreparing]);
  const rebuild = async (template: string) => {
    await attempt(() => torpor().templates.rebuild(template), 'The next version is being made.');
    reload();
  };
  const remove = async (template: string) => {
    const text = 'Sandboxes that were created from it are not changed.';
    if (!(await confirm(`Delete the template ${template}?`, text, 'Delete'))) return;
    await attempt(() => torpor().templates.delete(template), 'Deleted.');
    reload();
  };
  return (
    <>
      <div class="page-head">
        <h1>Templates</h1>
      </div>
      {error !== undefined && <FaultNotice error={error} retry={reload} />}
      {value !== undefined && (
        <div class="stack">
          <div class="panel scroll-x">
            <table>
              <thead>
                <tr>
                  <th>Name</th>
                  <th>State</th>
                  <th>Runtime</th>
                  <th>Services</th>
                  <th>Created</th>
                  <th>
                    <span class="unseen">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {value.items.map((template) => (
                  <tr key={`${template.name} ${template.runtime}`}>
                    <td>
                      <strong>{template.name}</strong>
                      <div class="small quiet">{template.description}</div>
                    </td>
                    <td>
                      <span class={template.state === 'failed' ? 'bad-text' : undefined}>
                        {template.state}
                      </span>
                      {template.phase !== null && (
                        <div class="small quiet moving" role="status">
                          being made: {template.phase}
                        </div>
                      )}
                      {template.error !== null && (
                        <div class="small bad-text wrap">{plainText(template.error.message)}</div>
                      )}
                    </td>
                    <td>{template.runtime}</td>
                    <td>{template.services.map((service) => service.name).join(', ') || '–'}</td>
                    <td class="number">{clockTime(template.createdAt)}</td>
                    <td class="act">
                      <button
                        type="button"
                        class="button small"
                        aria-expanded={logOf.value === template.name}
                        onClick={() => {
                          logOf.value = logOf.value === template.name ? undefined : template.name;
                        }}
                      >
                        Log<span class="unseen"> of {template.name}</span>
                      </button>{' '}
                      {template.builtIn &&
                        identity().operator &&
                        canChange() &&
                        template.root?.kind === 'own' && (
                          <button
                            type="button"
                            class="button small"
                            disabled={template.phase !== null}
                            onClick={() => void rebuild(template.name)}
                          >
                            Rebuild<span class="unseen"> {template.name}</span>
                          </button>
                        )}{' '}
                      {template.builtIn || !canChange() ? (
                        <span class="tag">{template.builtIn ? 'built in' : 'own'}</span>
                      ) : (
                        <button
                          type="button"
                          class="button small danger"
                          onClick={() => void remove(template.name)}
                        >
                          Delete<span class="unseen"> {template.name}</span>
                        </button>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {logOf.value !== undefined && <TemplateLog key={logOf.value} name={logOf.value} />}
          {canChange() && (
            <form class="panel stack" onSubmit={create}>
              <h2>Name a checkpoint as a template</h2>
              <div class="pair">
                <Field label="Name">
                  <input
                    required
                    pattern="[a-zA-Z0-9][a-zA-Z0-9._\-]{0,62}"
                    value={name}
                    onInput={({ currentTarget: { value: text } }) => {
                      name.value = text;
                    }}
                  />
                </Field>
                <Field label="Checkpoint" hint="ckpt_…, from the checkpoints of a sandbox.">
                  <input
                    required
                    pattern="ckpt_[a-z0-9]{20}"
                    class="mono"
                    value={from}
                    onInput={({ currentTarget: { value: text } }) => {
                      from.value = text;
                    }}
                  />
                </Field>
              </div>
              <div>
                <button type="submit" class="button main">
                  Create the template
                </button>
              </div>
            </form>
          )}
          <p class="quiet small">
            A root filesystem as an archive:{' '}
            <code>npx torpor template create alpine --from alpine.tar.gz</code>
          </p>
        </div>
      )}
    </>
  );
}

/** What happened while the template was prepared, as it happens. */
function TemplateLog({ name }: { readonly name: string }) {
  const { value, error, reload } = useLoaded((signal) => torpor().templates.log(name, { signal }), [name]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') reload();
    }, PREPARING_EVERY_MS);
    return () => clearInterval(timer);
  }, [name]);
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
