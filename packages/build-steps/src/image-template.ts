/** Images that builds begin with. An image becomes a template of its own, so that it is fetched once. */
import { createHash } from 'node:crypto';

/** The PATH of a template that is not an image. */
export const USUAL_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export function imageTemplateName(reference: string): string {
  const digest = createHash('sha256').update(reference).digest('hex').slice(0, 10);
  return `from-${reference.replace(/[^a-zA-Z0-9._-]/g, '-').slice(-40)}-${digest}`;
}
