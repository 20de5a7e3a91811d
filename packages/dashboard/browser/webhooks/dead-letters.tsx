/** The events that a webhook has given up. A replay sends them again. */
import type { WebhookId } from '@torpor/sdk';
import { collected } from '../live/collected.ts';
import { href } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { Table } from '../ui/table.tsx';
import { clockTime } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';

/** `dead`: how many there are; the list is read again when it changes. */
export function DeadLetters({ id, dead }: { readonly id: WebhookId; readonly dead: number }) {
  const { value, error, reload } = useLoaded(
    (signal) => collected(torpor().webhooks.deadLetters(id, { limit: 500, signal })),
    [id, dead],
  );
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <Table columns={['Position', 'Event', 'Sandbox', 'Tries', 'Given up', 'Why']}>
      {value.map(({ position, type, sandboxId, tries, deadAt, error: reason }) => (
        <tr key={position}>
          <td class="number">{position}</td>
          <td class="mono">{type}</td>
          <td>
            <a class="mono" href={href('sandboxes', sandboxId, 'timeline')}>
              {sandboxId}
            </a>
          </td>
          <td class="number">{tries}</td>
          <td class="number">{clockTime(deadAt)}</td>
          <td class="wrap">{reason}</td>
        </tr>
      ))}
    </Table>
  );
}
