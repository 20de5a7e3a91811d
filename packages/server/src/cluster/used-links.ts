/** The one-time links to private previews that were used at any node. */
import type { Clock, Database } from '@torpor/engine';
import type { UsedLinks } from '@torpor/gateway';

export function usedLinks({ db, clock }: { readonly db: Database; readonly clock: Clock }): UsedLinks {
  return {
    use: (nonce, expiresAt) =>
      db.transaction(async (tx) => {
        await tx.query('DELETE FROM used_preview_links WHERE expires_at <= $1', [clock.now()]);
        // Of two nodes that ask at once, the primary key lets one insert the row.
        const rows = await tx.query(
          'INSERT INTO used_preview_links (nonce, expires_at) VALUES ($1, $2) ON CONFLICT (nonce) DO NOTHING RETURNING nonce',
          [nonce, expiresAt],
        );
        return rows.length > 0;
      }),
  };
}
