/**
 * A port of the sandbox in a frame. The frame is of another origin, may not navigate the page, and is there only while
 * the sandbox runs: a frame that stays would wake the sandbox again.
 */
import { useSignal } from '@preact/signals';
import { canChange, torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { attempt } from '../ui/toasts.tsx';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { Asleep } from './asleep.tsx';
import type { TabProps } from './sandbox-view.tsx';
import { useSandboxChanges } from './use-sandbox-changes.ts';

const PORTS_EVERY_MS = 3_000;
/** What a page of a sandbox may do in a frame: everything but navigate the page around it. */
export const FRAME_RIGHTS =
  'allow-scripts allow-same-origin allow-forms allow-modals allow-popups allow-downloads';

export function PreviewTab({ sandbox }: TabProps) {
  const { id, preview, state } = sandbox;
  const {
    value: ports,
    error,
    reload,
  } = useLoaded((signal) => torpor().sandboxes.ports(id, { signal }), [id, state]);
  useSandboxChanges(id, reload);
  // A port that begins to listen makes no event.
  useEvery(state === 'running' ? PORTS_EVERY_MS : undefined, reload);
  const chosen = useSignal<number | undefined>(undefined);
  const round = useSignal(0);
  if (error !== undefined && ports === undefined) return <FaultNotice error={error} retry={reload} />;
  if (ports === undefined) return null;
  const port =
    ports.find((one) => one.port === chosen.value) ?? ports.find(({ listening }) => listening) ?? ports[0];
  if (port === undefined && state !== 'running')
    return <Asleep sandbox={sandbox} what="No port is declared." />;
  if (port === undefined) {
    return (
      <div class="empty">
        <h2>No port is open</h2>
        <p class="quiet">
          Start a server in the terminal, or declare a service with a port. It appears here as soon as it
          listens.
        </p>
      </div>
    );
  }
  const openLink = async () => {
    const link = await attempt(() => torpor().sandboxes.previewLink(id, { port: port.port }));
    if (link !== undefined) window.open(link.url, '_blank', 'noopener,noreferrer');
  };
  return (
    <div class="preview">
      <div class="row">
        <label class="row">
          <span class="small quiet">Port</span>
          <select
            class="narrow"
            value={String(port.port)}
            onChange={({ currentTarget }) => {
              chosen.value = Number(currentTarget.value);
            }}
          >
            {ports.map((one) => (
              <option key={one.port} value={String(one.port)}>
                {one.port}
                {one.service !== null ? ` · ${one.service}` : ''}
                {one.listening ? '' : ' · closed'}
              </option>
            ))}
          </select>
        </label>
        <code class="quiet wrap">{port.url}</code>
        <div class="row push">
          <button
            type="button"
            class="button small"
            onClick={() => {
              round.value++;
              reload();
            }}
          >
            Reload
          </button>
          {canChange() && (
            <button type="button" class="button small" onClick={() => void openLink()}>
              {state === 'running' ? 'Open in a new tab' : 'Wake and open in a new tab'}
            </button>
          )}
        </div>
      </div>
      {state !== 'running' ? (
        <Asleep sandbox={sandbox} what="The preview needs it awake." />
      ) : preview === 'private' ? (
        <p class="notice">A private preview opens by a link, in a tab of its own.</p>
      ) : port.url === null ? (
        <p class="notice">This server has no previews.</p>
      ) : (
        <iframe
          key={`${port.port} ${round.value}`}
          title={`Preview of port ${port.port}`}
          src={port.url}
          sandbox={FRAME_RIGHTS}
          referrerpolicy="no-referrer"
          allow=""
        />
      )}
    </div>
  );
}
