/** The runtime at a provider, from what its operator has set in the environment; E2B's own names count too. */
import type { Clock, Report } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import type { OpenedE2bRuntime } from '@torpor/runtime-e2b';
import type { RuntimeSettings } from '@torpor/runtime-shared';

export async function openE2b(
  ctx: {
    readonly dataDir: string;
    readonly settings: RuntimeSettings;
    readonly clock: Clock;
    readonly report: Report;
  },
  env: NodeJS.ProcessEnv,
): Promise<OpenedE2bRuntime> {
  const of = (name: string) => env[`TORPOR_${name}`] || env[name] || undefined;
  const apiKey = of('E2B_API_KEY');
  if (apiKey === undefined) {
    throw new TorporError('invalid_request', 'The runtime "e2b" needs the key of its provider.', {
      hint: 'Set TORPOR_E2B_API_KEY, and TORPOR_E2B_API_URL or TORPOR_E2B_DOMAIN to where the provider is.',
    });
  }
  // Heavy, and of no use to anybody else.
  const { e2bRuntime } = await import('@torpor/runtime-e2b');
  return e2bRuntime({
    apiKey,
    apiUrl: of('E2B_API_URL'),
    sandboxUrl: of('E2B_SANDBOX_URL'),
    domain: of('E2B_DOMAIN'),
    template: of('E2B_TEMPLATE'),
    ...ctx,
  });
}
