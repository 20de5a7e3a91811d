/** The gateway's `SandboxDirectory` port, implemented by the engine. */
import type { Engine } from '@torpor/engine';
import type { SandboxDirectory, SandboxInfo } from './sandbox-directory.ts';

/** `engine` is a function because the engine is created after the gateway: the engine needs the gateway's gates. */
export function engineSandboxDirectory(
  engine: () => Engine,
  openPorts: SandboxDirectory['openPorts'],
): SandboxDirectory {
  return {
    async find(id) {
      const found = await engine().find(id);
      if (found === undefined) return undefined;
      const { org, dialect, sandbox } = found;
      const { name, state, generation, startedAt, autoResume, preview, services } = sandbox;
      const { reason, lostCheckpoint } = sandbox;
      const facts = { id, org, dialect, name, state, generation, startedAt, autoResume, preview, services };
      return { ...facts, reason, lostCheckpoint };
    },
    async wake({ org, id }: SandboxInfo, signal) {
      await engine().resume({ org, signal }, id);
    },
    dial: ({ org, id }, port) => engine().dial(org, id, port),
    agent: ({ org, id }) => engine().agent(org, id),
    openPorts,
    keepAwake: (id) => engine().leases.hold(id),
  };
}
