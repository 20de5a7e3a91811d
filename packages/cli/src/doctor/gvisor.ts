/** What gVisor needs from this machine. Without it sandboxes can still be plain processes, unless it was asked for. */
import type { Check } from './check.ts';

export async function checkGvisor(
  dataDir: string,
  runtime: string | undefined,
  signal: AbortSignal,
): Promise<Check[]> {
  if (runtime !== undefined && runtime !== '' && runtime !== 'auto' && runtime !== 'gvisor') return [];
  // Only this command needs it, and it brings the whole server along.
  const { hostChecks } = await import('@torpor/server');
  const isWanted = runtime === 'gvisor';
  const checks = await hostChecks({ dataDir, signal });
  return checks.map(({ name, ok, detail, fix }): Check => {
    const what = `gVisor: ${name}`;
    if (ok) return { is: 'good', what, detail };
    return {
      is: isWanted ? 'wrong' : 'note',
      what,
      detail,
      ...(fix === null ? {} : { todo: sentence(fix) }),
    };
  });
}

function sentence(fix: string): string {
  return `${fix.charAt(0).toUpperCase()}${fix.slice(1)}.`;
}
