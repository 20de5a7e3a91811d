/** Checks what gVisor needs from this machine. A failed check is a problem only when gVisor was requested. */
import type { Check } from './check.ts';

export async function checkGvisor(
  dataDir: string,
  runtime: string | undefined,
  signal: AbortSignal,
): Promise<Check[]> {
  const names = (runtime || 'auto').split(',').map((name) => name.trim());
  if (!names.includes('auto') && !names.includes('gvisor')) return [];
  // Loaded lazily, because it imports the whole server.
  const { hostChecks, mountNamespaceOf } = await import('@torpor/server');
  const isWanted = names.includes('gvisor');
  const checks = await hostChecks({ dataDir, signal });
  const namespace = await mountNamespaceOf(dataDir);
  const looks = checks.map(({ name, ok, detail, fix }): Check => {
    const what = `gVisor: ${name}`;
    if (ok && fix === null) return { is: 'good', what, detail };
    return {
      is: isWanted && !ok ? 'wrong' : 'note',
      what,
      detail,
      ...(fix === null ? {} : { todo: sentence(fix) }),
    };
  });
  return namespace === undefined ? looks : [...looks, mountsCheck(namespace, dataDir)];
}

/** Shows how to see the roots of sandboxes, which are not mounted in the host's mount namespace. */
function mountsCheck(namespace: string, dataDir: string): Check {
  return {
    is: 'good',
    what: 'gVisor: mounts',
    detail: `in a separate mount namespace; list them with \`nsenter --mount=${namespace} ls ${dataDir}/gvisor/instances\``,
  };
}

function sentence(fix: string): string {
  return `${fix.charAt(0).toUpperCase()}${fix.slice(1)}.`;
}
