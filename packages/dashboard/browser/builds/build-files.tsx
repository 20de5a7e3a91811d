/** The files that the runner made, and what it has documented. */
import { useSignal } from '@preact/signals';
import type { BuildDocs, BuildStatus } from '@torpor/sdk';
import { plainText } from '../sandbox/plain-text.ts';
import { torpor } from '../shell/session.ts';
import { saveAs } from '../ui/download.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { attempt } from '../ui/toasts.tsx';
import { bytes } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';

interface BuildProps {
  readonly build: BuildStatus;
}

export function BuildFiles({ build }: BuildProps) {
  const isOpen = useSignal(false);
  return (
    <section class="panel wide">
      <div class="row">
        <h2>Files and documentation</h2>
        <button
          type="button"
          class="button small push"
          aria-expanded={isOpen.value}
          onClick={() => {
            isOpen.value = !isOpen.value;
          }}
        >
          {isOpen.value ? 'Hide' : 'Show'}
          <span class="unseen"> files and documentation</span>
        </button>
      </div>
      {isOpen.value && (
        <div class="stack build-made">
          {build.files_expired ? <p class="quiet">The files were deleted.</p> : <Files build={build} />}
          <Docs build={build} />
        </div>
      )}
    </section>
  );
}

function Files({ build: { job_id: id } }: BuildProps) {
  const { value, error, reload } = useLoaded((signal) => torpor().builds.files(id, { signal }), [id]);
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  if (value.length === 0) return <p class="quiet">The runner has made no files.</p>;
  const save = (path: string) =>
    attempt(async () => saveAs(path.split('/').at(-1) ?? path, await torpor().builds.readFile(id, path)));
  return (
    <ul class="plain">
      {value.map(({ path, size }) => (
        <li key={path} class="row">
          <code class="wrap">{plainText(path)}</code>
          <span class="quiet number small">{bytes(size)}</span>
          <button type="button" class="button small push" onClick={() => void save(path)}>
            Download<span class="unseen"> {plainText(path)}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

const SECTIONS: readonly (readonly [keyof BuildDocs, string])[] = [
  ['overview', 'Overview'],
  ['features', 'Features'],
  ['getting_started', 'Getting started'],
  ['faq', 'Questions'],
  ['changelog', 'Changes'],
];

/** Markdown as it was written: the runner is a program that nobody has to trust. */
function Docs({ build: { job_id: id } }: BuildProps) {
  const { value, error, reload } = useLoaded((signal) => torpor().builds.docs(id, { signal }), [id]);
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  const written = SECTIONS.filter(([name]) => value[name] !== null);
  if (written.length === 0) return <p class="quiet">There is no documentation.</p>;
  return (
    <>
      {written.map(([name, title]) => (
        <div key={name}>
          <h3>{title}</h3>
          <pre class="build-docs">{plainText(value[name] ?? '')}</pre>
        </div>
      ))}
    </>
  );
}
