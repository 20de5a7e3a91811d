/** Checks whether the headers of a preview allow other pages to embed it. */
import { type PreviewCheck, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import { isLive } from '../pipeline/live-check.ts';
import { previewStateOf } from './preview-state.ts';

export async function checkEmbedding(
  ctx: BuildContext,
  job: BuildJob,
  signal: AbortSignal,
): Promise<PreviewCheck> {
  const { sandboxId, port, previewUrl } = job;
  if (sandboxId === null || port === null || previewUrl === null) {
    throw new TorporError('not_found', 'No preview_url associated with this job');
  }
  const answer = (embeddable: boolean, reason: string | null) => ({
    embeddable,
    preview_url: previewUrl,
    reason,
  });
  const preview = await previewStateOf(ctx, job);
  if (preview?.state === 'expired') return answer(false, `Sandbox expired: ${preview.reason}.`);
  try {
    const request = { method: 'HEAD', path: '/', timeoutMs: ctx.settings.previewCheckMs } as const;
    const response = await ctx.sandboxes.requestPreview(sandboxId, port, request, signal);
    if (!isLive(response)) return answer(false, 'Sandbox unreachable (may have expired)');
    const forbidden = embeddingRefusal(response.headers);
    return answer(forbidden === null, forbidden);
  } catch (thrown) {
    const away = thrown instanceof TorporError && thrown.code !== 'internal';
    return answer(false, away ? 'Sandbox unreachable (may have expired)' : 'Unable to verify preview');
  }
}

function embeddingRefusal(headers: Readonly<Record<string, string>>): string | null {
  const frame = headers['x-frame-options']?.trim().toUpperCase();
  if (frame === 'DENY' || frame === 'SAMEORIGIN') return `X-Frame-Options is ${frame}`;
  const ancestors = /(?:^|;)\s*frame-ancestors\s+([^;]+)/i.exec(
    headers['content-security-policy'] ?? '',
  )?.[1];
  const only = ancestors?.trim().split(/\s+/) ?? [];
  const closed = only.length > 0 && only.every((source) => /^'(none|self)'$/i.test(source));
  return closed ? `Content-Security-Policy frame-ancestors is ${ancestors?.trim()}` : null;
}
