/** The form of a new template: the name of a checkpoint, a container image, or an archive of this computer. */
import { useSignal } from '@preact/signals';
import { torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { CheckField, Field, NumberField, Select, TextField } from '../ui/fields.tsx';
import { say } from '../ui/toasts.tsx';
import { useSubmit } from '../ui/use-submit.ts';
import {
  EMPTY_TEMPLATE,
  type TemplateDraft,
  type TemplateRequest,
  type TemplateSource,
  templateRequestOf,
} from './template-request.ts';

/** The server has stored the template by then, and shows how far it is. */
const STORED_AFTER_MS = 700;

interface PartProps {
  readonly draft: TemplateDraft;
  readonly set: (change: Partial<TemplateDraft>) => void;
}

export function NewTemplate({ reload }: { readonly reload: () => void }) {
  const draft = useSignal<TemplateDraft>(EMPTY_TEMPLATE);
  const set: PartProps['set'] = (change) => {
    draft.value = { ...draft.value, ...change };
  };
  const { busy, error, submit } = useSubmit(async () => {
    const request: TemplateRequest = templateRequestOf(draft.value);
    setTimeout(reload, STORED_AFTER_MS);
    try {
      await torpor().templates.create(request);
    } finally {
      reload();
    }
    say('The template is ready.');
    draft.value = { ...EMPTY_TEMPLATE, source: draft.value.source };
  });
  const { source, name, description, memoryMb, cpus } = draft.value;
  const part = { draft: draft.value, set };
  return (
    <form class="panel stack" onSubmit={submit}>
      <h2>New template</h2>
      <div class="triple">
        <TextField
          label="Name"
          hint="With a tag for a version: app:v2."
          required
          pattern="[a-zA-Z0-9][a-zA-Z0-9._\-]{0,62}(:[a-z0-9][a-z0-9._\-]{0,62})?"
          value={name}
          onChange={(value) => set({ name: value })}
        />
        <Select
          label="From"
          value={source}
          options={[
            ['checkpoint', 'A checkpoint'],
            ['image', 'A container image'],
            ['archive', 'An archive of this computer'],
          ]}
          onChange={(value) => set({ source: value as TemplateSource })}
        />
        <TextField
          label="Description"
          hint="Optional."
          value={description}
          onChange={(value) => set({ description: value })}
        />
      </div>
      {source === 'checkpoint' && <FromCheckpoint {...part} />}
      {source === 'image' && <FromImage {...part} />}
      {source === 'archive' && <FromArchive {...part} />}
      <div class="triple">
        <NumberField
          label="Memory, MB"
          hint="The limit of sandboxes whose create names none."
          value={memoryMb}
          onChange={(value) => set({ memoryMb: value })}
        />
        <NumberField
          label="CPUs"
          hint="Empty: no limit, or that of the source."
          isDecimal
          value={cpus}
          onChange={(value) => set({ cpus: value })}
        />
      </div>
      {error !== undefined && <FaultNotice error={error} />}
      <div>
        <button type="submit" class="button main" disabled={busy}>
          {busy ? 'Preparing the template…' : 'Create the template'}
        </button>
      </div>
    </form>
  );
}

function FromCheckpoint({ draft: { checkpoint, replaces }, set }: PartProps) {
  return (
    <>
      <TextField
        label="Checkpoint"
        hint="ckpt_…, from the checkpoints of a sandbox."
        required
        pattern="ckpt_[a-z0-9]{20}"
        isCode
        value={checkpoint}
        onChange={(value) => set({ checkpoint: value })}
      />
      <CheckField
        label="Take the place of a template that has this name"
        checked={replaces}
        onChange={(value) => set({ replaces: value })}
      />
    </>
  );
}

function FromImage({ draft, set }: PartProps) {
  return (
    <>
      <div class="triple">
        <TextField
          label="Image"
          hint="Without a registry: of Docker Hub."
          required
          isCode
          placeholder="node:24-slim"
          value={draft.image}
          onChange={(value) => set({ image: value })}
        />
        <TextField
          label="User of its registry"
          hint="Optional. Used for this image, not stored."
          value={draft.registryUser}
          onChange={(value) => set({ registryUser: value })}
        />
        <TextField
          label="Password or token"
          type="password"
          disabled={draft.registryUser.trim() === ''}
          value={draft.registryPassword}
          onChange={(value) => set({ registryPassword: value })}
        />
      </div>
      <CheckField
        label="Run the program of the image (ENTRYPOINT and CMD), and seal it while it runs"
        checked={draft.runsEntrypoint}
        onChange={(value) => set({ runsEntrypoint: value })}
      />
      {!draft.runsEntrypoint && <StartCommand draft={draft} set={set} />}
    </>
  );
}

function FromArchive({ draft, set }: PartProps) {
  return (
    <>
      <div class="pair">
        <Field
          label="Archive"
          hint="A root filesystem may be compressed with gzip or zstd; an image may not."
        >
          <input
            type="file"
            required
            onChange={({ currentTarget }) => set({ archive: currentTarget.files?.[0] })}
          />
        </Field>
        <Select
          label="What it holds"
          value={draft.format}
          options={[
            ['root', 'A root filesystem'],
            ['docker', 'An image of docker save'],
            ['oci', 'An image as an OCI layout'],
          ]}
          onChange={(value) => set({ format: value as TemplateDraft['format'] })}
        />
      </div>
      <StartCommand draft={draft} set={set} />
    </>
  );
}

function StartCommand({ draft: { command, port }, set }: PartProps) {
  return (
    <div class="pair">
      <TextField
        label="Start command"
        hint="Optional. Sandboxes begin with it running."
        isCode
        placeholder="npm start"
        value={command}
        onChange={(value) => set({ command: value })}
      />
      <NumberField
        label="Its port"
        hint="The template is ready when the port answers."
        value={port}
        onChange={(value) => set({ port: value })}
      />
    </div>
  );
}
