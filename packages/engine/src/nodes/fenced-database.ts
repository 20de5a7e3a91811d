/** The database of a node: every transaction first makes sure that no other node has raised the epoch of this node. */
import type { Database } from '../ports/database.ts';
import type { Membership } from './membership.ts';

export function fencedDatabase(db: Database, membership: Membership): Database {
  return {
    dialect: db.dialect,
    query: (sql, params) => db.query(sql, params),
    listen: (channel, onNotice) => db.listen(channel, onNotice),
    close: () => db.close(),
    transaction: (work) =>
      db.transaction(async (tx) => {
        await membership.requireEpoch(tx);
        return work(tx);
      }),
  };
}
