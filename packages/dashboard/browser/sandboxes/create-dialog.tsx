/** The form that creates a sandbox. */
import { type Signal, useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { put } from '../live/sandboxes.ts';
import { go } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { Field, NumberField, Select, TextField } from '../ui/fields.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { useLoaded } from '../ui/use-loaded.ts';
import { type CreateDraft, EMPTY_DRAFT, requestOf, type ServiceDraft } from './create-request.ts';
import { NetworkFields } from './network-fields.tsx';

const LIFETIMES: readonly (readonly [value: string, title: string])[] = [
  ['', 'No limit'],
  ['900', '15 minutes'],
  ['3600', '1 hour'],
  ['28800', '8 hours'],
  ['86400', '1 day'],
  ['604800', '7 days'],
];
const IDLE_TIMES: readonly (readonly [value: string, title: string])[] = [
  ['', 'Default'],
  ['60', '1 minute'],
  ['900', '15 minutes'],
  ['3600', '1 hour'],
];

export function CreateDialog({ onClose }: { readonly onClose: () => void }) {
  const draft = useSignal<CreateDraft>(EMPTY_DRAFT);
  const suggestions = useId();
  const { value: offered } = useLoaded(async (signal) => {
    const [templates, runtimes] = await Promise.all([
      torpor().templates.page({ signal }),
      torpor().runtimes({ signal }),
    ]);
    return { templates: templates.items.filter(({ state }) => state === 'ready'), runtimes };
  }, []);
  const set = (change: Partial<CreateDraft>) => {
    draft.value = { ...draft.value, ...change };
  };
  const create = async () => {
    const sandbox = await torpor().sandboxes.create(requestOf(draft.value));
    put([sandbox]);
    go('sandboxes', sandbox.id);
  };
  const { name, template, runtime, timeoutSeconds, onTimeout, idleSeconds, onIdle, preview } = draft.value;
  const templates = [...new Set((offered?.templates ?? []).map((one) => one.name))];
  return (
    <FormDialog
      title="Create a sandbox"
      action="Create"
      busyAction="Creating…"
      work={create}
      onClose={onClose}
    >
      <div class="pair">
        <TextField
          label="Name"
          hint="Optional; letters, digits, dot, dash."
          value={name}
          pattern="[a-zA-Z0-9][a-zA-Z0-9._\-]{0,62}"
          onChange={(value) => set({ name: value })}
        />
        <TextField
          label="Template"
          hint="One of another organisation: organisation/name."
          value={template}
          placeholder="base"
          list={suggestions}
          onChange={(value) => set({ template: value })}
        />
        <datalist id={suggestions}>
          {templates.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      </div>
      <div class="pair">
        <Select
          label="Lifetime"
          value={timeoutSeconds}
          options={LIFETIMES}
          onChange={(value) => set({ timeoutSeconds: value })}
        />
        <Select
          label="At its end"
          value={onTimeout}
          disabled={timeoutSeconds === ''}
          options={[
            ['pause', 'Pause'],
            ['kill', 'Kill'],
          ]}
          onChange={(value) => set({ onTimeout: value as CreateDraft['onTimeout'] })}
        />
      </div>
      <div class="pair">
        <Select
          label="Idle for"
          value={idleSeconds}
          options={IDLE_TIMES}
          onChange={(value) => set({ idleSeconds: value })}
        />
        <Select
          label="Then"
          value={onIdle}
          options={[
            ['', 'Default'],
            ['pause', 'Pause'],
            ['keep', 'Keep running'],
            ['stop', 'Stop'],
            ['kill', 'Kill'],
          ]}
          onChange={(value) => set({ onIdle: value as CreateDraft['onIdle'] })}
        />
      </div>
      <Services draft={draft} />
      <NetworkFields draft={draft.value.network} onChange={(network) => set({ network })} />
      <Field label="Environment" hint="One NAME=value per line.">
        <textarea
          rows={2}
          spellcheck={false}
          value={draft.value.env}
          onInput={({ currentTarget: { value } }) => set({ env: value })}
        />
      </Field>
      <details>
        <summary>Preview, runtime, resources, metadata</summary>
        <div class="dialog-body inner">
          <div class="pair">
            <Select
              label="Preview"
              value={preview}
              options={[
                ['public', 'Public'],
                ['private', 'Private, by link'],
              ]}
              onChange={(value) => set({ preview: value as CreateDraft['preview'] })}
            />
            <Select
              label="Runtime"
              value={runtime}
              options={[
                ['', 'Default'],
                ...(offered?.runtimes ?? []).map((one) => [one.name, one.name] as const),
              ]}
              onChange={(value) => set({ runtime: value })}
            />
          </div>
          <div class="triple">
            <NumberField
              label="Memory, MB"
              value={draft.value.memoryMb}
              onChange={(memoryMb) => set({ memoryMb })}
            />
            <NumberField label="CPUs" isDecimal value={draft.value.cpus} onChange={(cpus) => set({ cpus })} />
            <NumberField label="Disk, MB" value={draft.value.diskMb} onChange={(diskMb) => set({ diskMb })} />
          </div>
          <Field label="Metadata" hint="One key=value per line. The list can be filtered by it.">
            <textarea
              rows={2}
              spellcheck={false}
              value={draft.value.metadata}
              onInput={({ currentTarget: { value } }) => set({ metadata: value })}
            />
          </Field>
        </div>
      </details>
    </FormDialog>
  );
}

function Services({ draft }: { readonly draft: Signal<CreateDraft> }) {
  const { services } = draft.value;
  const set = (next: readonly ServiceDraft[]) => {
    draft.value = { ...draft.value, services: next };
  };
  const change = (index: number, part: Partial<ServiceDraft>) =>
    set(services.map((service, at) => (at === index ? { ...service, ...part } : service)));
  return (
    <fieldset class="services">
      <legend>Services</legend>
      {services.map((service, index) => (
        <div class="service" key={index}>
          <input
            aria-label={`Name of service ${index + 1}`}
            placeholder="name"
            value={service.name}
            onInput={({ currentTarget: { value } }) => change(index, { name: value })}
          />
          <input
            aria-label={`Command of service ${index + 1}`}
            placeholder="npm run dev"
            class="mono"
            value={service.command}
            onInput={({ currentTarget: { value } }) => change(index, { command: value })}
          />
          <input
            aria-label={`Port of service ${index + 1}`}
            placeholder="port"
            inputMode="numeric"
            pattern="[0-9]*"
            value={service.port}
            onInput={({ currentTarget: { value } }) => change(index, { port: value })}
          />
          <button
            type="button"
            class="button small plain"
            onClick={() => set(services.filter((_, at) => at !== index))}
          >
            Remove<span class="unseen"> service {index + 1}</span>
          </button>
        </div>
      ))}
      <button
        type="button"
        class="button small"
        onClick={() => set([...services, { name: '', command: '', port: '' }])}
      >
        Add a service
      </button>
    </fieldset>
  );
}
