/** What gVisor needs from this machine. Without it sandboxes can still be plain processes, unless it was asked for. */
import type { Check } from './check.ts';

export async function checkGvisor(
  dataDir: string,
  runtime: string | undefined,
  signal: AbortSignal,
): Promise<Check[]> {
  if (runtime !== undefined && runtime !== '' && runtime !== 'auto' && runtime !== 'gvisor') return [];
  // Only this command needs it, and it brings the whole server along.
  const { hostChecks, mountNamespaceOf } = await import('@torpor/server');
  const isWanted = runtime === 'gvisor';
  const checks = await hostChecks({ dataDir, signal });
  const namespace = await mountNamespaceOf(dataDir);
  const looks = checks.map(({ name, ok, detail, fix }): Check => {
    const what = `gVisor: ${name}`;
    if (ok) return { is: 'good', what, detail };
    return {
      is: isWanted ? 'wrong' : 'note',
      what,
      detail,
      ...(fix === null ? {} : { todo: sentence(fix) }),
    };
  });
  return namespace === undefined ? looks : [...looks, mountsCheck(namespace, dataDir)];
}

/** Roots of sandboxes are not mounted where a shell of the host would find them. */
function mountsCheck(namespace: string, dataDir: string): Check {
  return {
    is: 'good',
    what: 'gVisor: mounts',
    detail: `in a namespace of their own; look inside with \`nsenter --mount=${namespace} ls ${dataDir}/gvisor/instances\``,
  };
}

function sentence(fix: string): string {
  return `${fix.charAt(0).toUpperCase()}${fix.slice(1)}.`;
}
