/** Jobs, processes and ports of a sandbox. None of it wakes the sandbox; ending a job of a sleeping one would. */
import type { JobId, ProcessView } from '@torpor/sdk';
import { href } from '../shell/router.ts';
import { canChange, torpor } from '../shell/session.ts';
import { now } from '../ui/clock.ts';
import { confirm } from '../ui/confirm.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { Table } from '../ui/table.tsx';
import { attempt } from '../ui/toasts.tsx';
import { ago } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import type { TabProps } from './sandbox-view.tsx';
import { useSandboxChanges } from './use-sandbox-changes.ts';

export function ProcessesTab({ sandbox }: TabProps) {
  const { id, state } = sandbox;
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const [processes, ports] = await Promise.all([
        torpor().sandboxes.processes(id, { signal }),
        torpor().sandboxes.ports(id, { signal }),
      ]);
      return { processes, ports };
    },
    [id, state],
  );
  useSandboxChanges(id, reload);
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <div class="stack">
      <section class="panel">
        <div class="row">
          <h2>Processes</h2>
          <button type="button" class="button small push" onClick={reload}>
            Read again
          </button>
        </div>
        {value.processes.length === 0 ? (
          <p class="quiet">No services, background processes or commands.</p>
        ) : (
          <Table columns={['Process', 'Status', 'PID', 'Started']} hasActions>
            {value.processes.map((process, index) => (
              <Process key={process.id ?? index} process={process} sandbox={sandbox} reload={reload} />
            ))}
          </Table>
        )}
      </section>
      <section class="panel">
        <h2>Ports</h2>
        {value.ports.length === 0 ? (
          <p class="quiet">No port is declared or open.</p>
        ) : (
          <Table columns={['Port', 'State', 'Service', 'Process']}>
            {value.ports.map((port) => (
              <tr key={port.port}>
                <td class="number">
                  <a href={href('sandboxes', id, 'preview')}>{port.port}</a>
                </td>
                <td>{port.listening ? 'open' : 'closed'}</td>
                <td>{port.service ?? '–'}</td>
                <td>{port.process ?? '–'}</td>
              </tr>
            ))}
          </Table>
        )}
      </section>
    </div>
  );
}

interface ProcessProps extends TabProps {
  readonly process: ProcessView;
  readonly reload: () => void;
}

function Process({ process, sandbox, reload }: ProcessProps) {
  const { id, jobId, kind, command, status, reason, pid, startedAt } = process;
  const end = async (job: JobId) => {
    const title = `End ${id ?? 'this process'}?`;
    if (!(await confirm(title, 'It gets SIGTERM, and SIGKILL ten seconds later.', 'End'))) return;
    await attempt(() => torpor().jobs.end(job), 'Ended.');
    reload();
  };
  return (
    <tr>
      <td>
        <strong>{kind === 'service' ? id : kind}</strong>
        <div class="mono quiet wrap clamp" title={command}>
          {command}
        </div>
      </td>
      <td>
        {status}
        {reason !== null && <div class="small quiet">{reason}</div>}
      </td>
      <td class="number">{pid ?? '–'}</td>
      <td class="number">{startedAt === null ? '–' : ago(startedAt, now.value)}</td>
      <td class="act">
        {id !== null && (
          <a
            class="button small"
            href={`${href('sandboxes', sandbox.id, 'logs')}?process=${encodeURIComponent(id)}`}
          >
            Log
          </a>
        )}{' '}
        {canChange() && jobId !== null && status === 'running' && sandbox.state === 'running' && (
          <button type="button" class="button small danger" onClick={() => void end(jobId)}>
            End
          </button>
        )}
      </td>
    </tr>
  );
}
