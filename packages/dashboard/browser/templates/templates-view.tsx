/** Templates: the named checkpoints that sandboxes are created from. */
import { useSignal } from '@preact/signals';
import type { TemplateView } from '@torpor/sdk';
import { plainText } from '../sandbox/plain-text.ts';
import { canChange, identity, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { ListView } from '../ui/list-view.tsx';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { NewTemplate } from './new-template.tsx';
import { PREPARING_EVERY_MS, TemplateLog } from './template-log.tsx';
import { limitsText } from './template-request.ts';

export function TemplatesView() {
  const templates = useLoaded((signal) => torpor().templates.page({ limit: 500, signal }), []);
  const { value, reload } = templates;
  const logOf = useSignal<string | undefined>(undefined);
  const isPreparing =
    value?.items.some(({ phase, state }) => phase !== null || state === 'preparing') ?? false;
  useEvery(isPreparing ? PREPARING_EVERY_MS : undefined, reload);
  return (
    <ListView title="Templates" loaded={templates}>
      {({ items }) => (
        <div class="stack">
          <div class="panel">
            <Table columns={['Name', 'State', 'Runtime', 'Limits', 'Services', 'Created']} hasActions>
              {items.map((template) => (
                <tr key={`${template.name} ${template.runtime}`}>
                  <td>
                    <NameAndSource template={template} />
                  </td>
                  <td>
                    <State template={template} />
                  </td>
                  <td>{template.runtime}</td>
                  <td>{limitsText(template)}</td>
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
                    <Actions template={template} reload={reload} />
                  </td>
                </tr>
              ))}
            </Table>
          </div>
          {logOf.value !== undefined && <TemplateLog key={logOf.value} name={logOf.value} />}
          {canChange() && <NewTemplate reload={reload} />}
          <p class="quiet small">
            From a Dockerfile: <code>npx torpor template build . --name app</code>
          </p>
        </div>
      )}
    </ListView>
  );
}

interface TemplateProps {
  readonly template: TemplateView;
}

function NameAndSource({ template: { name, image, description, builtIn, public: isPublic } }: TemplateProps) {
  return (
    <>
      <strong>{name}</strong> {builtIn && <span class="tag">built in</span>}
      {isPublic && <span class="tag">published</span>}
      {isPublic && (
        <div class="small quiet">
          for others: <code>{`${identity().org}/${name}`}</code>
        </div>
      )}
      {image !== null && (
        <div class="small quiet mono wrap" title={image.digest}>
          {image.reference ?? 'an uploaded image'}
        </div>
      )}
      <div class="small quiet">{description}</div>
    </>
  );
}

function State({ template: { state, phase, error } }: TemplateProps) {
  return (
    <>
      <span class={state === 'failed' ? 'bad-text' : undefined}>{state}</span>
      {phase !== null && (
        <div class="small quiet moving" role="status">
          being made: {phase}
        </div>
      )}
      {error !== null && <div class="small bad-text wrap">{plainText(error.message)}</div>}
    </>
  );
}

interface ActionsProps extends TemplateProps {
  readonly reload: () => void;
}

function Actions({ template, reload }: ActionsProps) {
  const { name, builtIn, phase, root, state, public: isPublic } = template;
  if (!canChange()) return null;
  const rebuild = async () => {
    await attempt(() => torpor().templates.rebuild(name), 'The next version is being made.');
    reload();
  };
  const publish = async () => {
    const text = `The other organisations of this server can create sandboxes from it, as ${identity().org}/${name}. They get everything that is in it, with its environment.`;
    if (!(await confirm(`Publish ${name}?`, text, 'Publish'))) return;
    await attempt(() => torpor().templates.publish(name), 'Published.');
    reload();
  };
  const unpublish = async () => {
    await attempt(
      () => torpor().templates.unpublish(name),
      'Not published any more. Sandboxes that exist do not change.',
    );
    reload();
  };
  const remove = async () => {
    const text = 'Sandboxes that were created from it are not changed.';
    if (!(await confirm(`Delete the template ${name}?`, text, 'Delete'))) return;
    await attempt(() => torpor().templates.delete(name), 'Deleted.');
    reload();
  };
  if (builtIn) {
    if (!identity().operator || root?.kind !== 'own') return null;
    return (
      <button type="button" class="button small" disabled={phase !== null} onClick={() => void rebuild()}>
        Rebuild<span class="unseen"> {name}</span>
      </button>
    );
  }
  return (
    <>
      {state === 'ready' && (
        <button type="button" class="button small" onClick={() => void (isPublic ? unpublish() : publish())}>
          {isPublic ? 'Unpublish' : 'Publish'}
          <span class="unseen"> {name}</span>
        </button>
      )}{' '}
      <button type="button" class="button small danger" onClick={() => void remove()}>
        Delete<span class="unseen"> {name}</span>
      </button>
    </>
  );
}
