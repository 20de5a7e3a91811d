/** The gateway's `SandboxDirectory` port, implemented by the engine. */
import type { Engine, Tracing } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import type { SandboxDirectory, SandboxInfo } from './sandbox-directory.ts';

/** `engine` is a function because the engine is created after the gateway: the engine needs the gateway's gates. */
export function engineSandboxDirectory(
  engine: () => Engine,
  tracing: Tracing,
  openPorts: SandboxDirectory['openPorts'],
): SandboxDirectory {
  return {
    async find(id) {
      const found = await engine().find(id);
      if (found === undefined) return undefined;
      const { org, dialect, sandbox } = found;
      const { name, state, generation, startedAt, autoResume, preview, services } = sandbox;
      const { requestHost, reason, lostCheckpoint } = sandbox;
      const facts = { id, org, dialect, name, state, generation, startedAt, autoResume, preview, services };
      return { ...facts, requestHost, reason, lostCheckpoint };
    },
    async wake({ org, id }: SandboxInfo, signal) {
      // The visitors who wait are strangers, so the trace is not theirs.
      const span = tracing.begin('wake', { 'torpor.sandbox.id': id, 'torpor.org': org });
      try {
        await engine().resume({ org, signal, span }, id);
        span.end();
      } catch (thrown) {
        span.end(TorporError.from(thrown));
        throw thrown;
      }
    },
    dial: ({ org, id }, port) => engine().dial(org, id, port),
    agent: ({ org, id }) => engine().agent(org, id),
    openPorts,
    keepAwake: (id) => engine().leases.hold(id),
  };
}
