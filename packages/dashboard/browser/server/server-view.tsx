/** The server: its health, runtimes, usage and settings, and a check of everything that it keeps. */
import { useSignal } from '@preact/signals';
import type { DoctorReport, RuntimeView, SettingView } from '@torpor/sdk';
import { href } from '../shell/router.ts';
import { canChange, identity, torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { bytes, clockTime, duration, plural } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';

export function ServerView() {
  const { value, error, reload } = useLoaded(async (signal) => {
    const [health, runtimes, usage] = await Promise.all([
      torpor().health({ signal }),
      torpor().runtimes({ signal }),
      torpor().usage({ signal }),
    ]);
    return { health, runtimes, usage };
  }, []);
  return (
    <>
      <div class="page-head">
        <h1>Server</h1>
      </div>
      {error !== undefined && <FaultNotice error={error} retry={reload} />}
      {value !== undefined && (
        <div class="stack">
          <div class="columns">
            <section class="panel">
              <h2>Health</h2>
              <dl class="facts">
                <dt>Version</dt>
                <dd>{value.health.version}</dd>
                <dt>Database</dt>
                <dd>{value.health.database}</dd>
                <dt>Disk</dt>
                <dd>{value.health.disk}</dd>
                <dt>Up for</dt>
                <dd>{duration(value.health.uptimeSeconds * 1_000)}</dd>
              </dl>
            </section>
            <section class="panel">
              <h2>Usage this month</h2>
              <dl class="facts">
                <dt>Running</dt>
                <dd>{duration(value.usage.runningSeconds * 1_000)}</dd>
                <dt>Asleep</dt>
                <dd>{duration(value.usage.pausedSeconds * 1_000)}</dd>
                <dt>Checkpoints</dt>
                <dd>{bytes(value.usage.diskBytes)}</dd>
                <dt>Egress</dt>
                <dd>
                  {value.usage.egressBytes === null
                    ? 'not counted'
                    : `${bytes(value.usage.egressBytes.sent)} sent, ${bytes(value.usage.egressBytes.received)} received`}
                </dd>
              </dl>
            </section>
          </div>
          <Runtimes runtimes={value.runtimes} />
          {identity().operator && <Doctor />}
          {identity().operator && canChange() && <Check />}
          {identity().service && <Settings />}
        </div>
      )}
    </>
  );
}

const KEEPS = { memory: 'memory and files', files: 'files', none: 'nothing' } as const;

type Capabilities = RuntimeView['capabilities'];

const CAPABILITIES: readonly (readonly [title: string, of: (can: Capabilities) => boolean | string])[] = [
  ['A pause keeps', ({ pause }) => KEEPS[pause]],
  ['A checkpoint starts more than once', ({ replayable }) => replayable],
  ['Isolated from the machine and each other', ({ isolated }) => isolated],
  ['Fork', ({ fork }) => fork],
  ['Snapshot without a stop', ({ snapshotWhileRunning }) => snapshotWhileRunning],
  ['Terminals', ({ pty }) => pty],
  ['Templates from archives and images', ({ customTemplates }) => customTemplates],
];

/** What each runtime can do: asked before anything is written, so a request fails early. */
function Runtimes({ runtimes }: { readonly runtimes: readonly RuntimeView[] }) {
  return (
    <section class="panel">
      <h2>Runtimes</h2>
      <div class="scroll-x">
        <table class="capabilities">
          <thead>
            <tr>
              <th>Capability</th>
              {runtimes.map(({ name, default: isDefault }) => (
                <th key={name} scope="col">
                  {name} {isDefault && <span class="tag">default</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {CAPABILITIES.map(([title, of]) => (
              <tr key={title}>
                <th scope="row">{title}</th>
                {runtimes.map(({ name, capabilities }) => {
                  const can = of(capabilities);
                  return (
                    <td key={name} class={can === false ? 'quiet' : undefined}>
                      {can === true ? 'yes' : can === false ? 'no' : can}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** What `torpor doctor` finds on the machine of the server. */
function Doctor() {
  const report = useSignal<DoctorReport | undefined>(undefined);
  const busy = useSignal(false);
  const run = async () => {
    busy.value = true;
    report.value = (await attempt(() => torpor().doctor())) ?? report.value;
    busy.value = false;
  };
  const found = report.value;
  const faulty = found?.checks.filter(({ ok }) => !ok).length ?? 0;
  return (
    <section class="panel stack">
      <div class="row task">
        <h2>Doctor</h2>
        <span class="quiet">
          Checks everything that the server needs from its machine, and boots a sandbox. As{' '}
          <code>npx torpor doctor</code> does.
        </span>
        <button type="button" class="button push" disabled={busy.value} onClick={() => void run()}>
          {busy.value ? 'Examining…' : 'Examine the machine'}
        </button>
      </div>
      {found !== undefined && (
        <>
          <p>
            {plural(found.checks.length, 'check')} in {duration(found.durationMs)}, {clockTime(found.at)}:{' '}
            {faulty === 0 ? (
              'all passed.'
            ) : (
              <strong class="bad-text">{plural(faulty, 'failed', 'failed')}.</strong>
            )}
          </p>
          <ul class="plain checks">
            {found.checks.map(({ name, ok, detail, fix }) => (
              <li key={name}>
                <span class={`mark ${ok ? (fix === null ? 'good' : 'note') : 'bad'}`}>
                  {ok ? (fix === null ? 'passed' : 'note') : 'failed'}
                </span>
                <div>
                  <strong>{name}</strong> <span class="quiet wrap">{detail}</span>
                  {fix !== null && <div class="small wrap">To do: {fix}</div>}
                </div>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

/** Compares the records with what exists, and repairs differences. */
function Check() {
  const report = useSignal<Awaited<ReturnType<ReturnType<typeof torpor>['fsck']>> | undefined>(undefined);
  const busy = useSignal(false);
  const run = async () => {
    busy.value = true;
    report.value = await attempt(() => torpor().fsck());
    busy.value = false;
  };
  const found = report.value;
  return (
    <section class="panel stack">
      <div class="row task">
        <h2>Check</h2>
        <span class="quiet">
          Compares the records with what exists, and repairs differences. As <code>npx torpor fsck</code>{' '}
          does.
        </span>
        <button type="button" class="button push" disabled={busy.value} onClick={() => void run()}>
          {busy.value ? 'Checking…' : 'Check now'}
        </button>
      </div>
      {found !== undefined && (
        <div>
          <p>
            {plural(found.sandboxes, 'sandbox', 'sandboxes')} and {plural(found.checkpoints, 'checkpoint')} in{' '}
            {duration(found.durationMs)}: {found.findings.length === 0 ? 'all in order.' : ''}
          </p>
          <ul class="plain">
            {found.findings.map(({ sandboxId, checkpointId, what, detail }) => (
              <li key={`${sandboxId} ${checkpointId} ${what}`} class="notice warn">
                <strong>
                  {sandboxId === null ? checkpointId : <a href={href('sandboxes', sandboxId)}>{sandboxId}</a>}
                  : {what}
                </strong>
                <span class="wrap">{detail}</span>
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

function Settings() {
  const text = useSignal('');
  const isAll = useSignal(false);
  const { value, error, reload } = useLoaded((signal) => torpor().settings({ signal }), []);
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  const words = text.value.toLowerCase();
  const shown = value.filter(({ name, meaning, source }) =>
    words === '' ? isAll.value || source !== 'default' : `${name} ${meaning}`.toLowerCase().includes(words),
  );
  return (
    <section class="panel stack">
      <div class="row">
        <h2>Settings</h2>
        <label class="row push">
          <input
            type="checkbox"
            checked={isAll.value}
            onChange={({ currentTarget }) => {
              isAll.value = currentTarget.checked;
            }}
          />
          Also defaults
        </label>
        <input
          type="search"
          class="filter"
          aria-label="Find a setting"
          placeholder={`Find in ${value.length} settings`}
          value={text}
          onInput={({ currentTarget }) => {
            text.value = currentTarget.value;
          }}
        />
      </div>
      {shown.length === 0 ? (
        <p class="quiet">
          {words === '' ? 'All settings have their default values.' : 'No setting matches.'}
        </p>
      ) : (
        <Table columns={['Setting', 'Value', 'From', 'Meaning']}>
          {shown.map((setting) => (
            <Setting key={setting.name} setting={setting} />
          ))}
        </Table>
      )}
    </section>
  );
}

function Setting({ setting: { name, value, unit, source, meaning } }: { readonly setting: SettingView }) {
  const shown =
    unit === 'ms' ? duration(value) : unit === 's' ? duration(value * 1_000) : value.toLocaleString();
  return (
    <tr>
      <td class="mono">{name}</td>
      <td class="number">{unit === 'bytes' ? bytes(value) : shown}</td>
      <td>{source}</td>
      <td class="wrap">{meaning}</td>
    </tr>
  );
}
