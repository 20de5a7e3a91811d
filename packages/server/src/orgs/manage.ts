/** Creating, changing and deleting organisations, for the routes. */
import {
  type Clock,
  type Database,
  findOrg,
  insertOrg,
  listOrgs,
  lockOrg,
  markOrgDeleted,
  type Queryable,
  quotaUsage,
  updateOrgRetention,
  updateQuotas,
} from '@torpor/engine';
import {
  type ChangeOrgRequest,
  type CreateOrgRequest,
  DEFAULT_ORG,
  type OrgDetails,
  type OrgView,
  QUOTA_NAMES,
  type QuotaChange,
  type Quotas,
  TorporError,
} from '@torpor/protocol';
import { countValidKeys } from '../keys/key-table.ts';

export interface OrgContext {
  readonly db: Database;
  readonly clock: Clock;
}

export function noSuchOrg(id: string): TorporError {
  return new TorporError('not_found', `There is no organisation "${id}".`);
}

export async function createOrg({ db, clock }: OrgContext, request: CreateOrgRequest): Promise<OrgDetails> {
  const { name: id, quotas = {}, deletePausedAfterSeconds = 'default' } = request;
  const org: OrgView = {
    id,
    createdAt: clock.now(),
    quotas: changed(UNLIMITED, quotas),
    deletePausedAfterSeconds,
  };
  return db.transaction(async (tx) => {
    if (!(await insertOrg(tx, org))) {
      throw new TorporError('conflict', `The name "${id}" is taken.`, {
        hint: 'Choose another name. The name of a deleted organisation cannot be used again.',
      });
    }
    return { ...org, used: await quotaUsage(tx, id) };
  });
}

export async function requireOrgExists({ db }: Pick<OrgContext, 'db'>, id: string): Promise<void> {
  if ((await findOrg(db, id)) === undefined) throw noSuchOrg(id);
}

export async function getOrg({ db }: Pick<OrgContext, 'db'>, id: string): Promise<OrgDetails> {
  const org = await findOrg(db, id);
  if (org === undefined) throw noSuchOrg(id);
  return { ...org, used: await quotaUsage(db, id) };
}

export async function pageOfOrgs({ db }: Pick<OrgContext, 'db'>, after: string, limit: number) {
  const items = await listOrgs(db, after, limit);
  return { items, nextCursor: items.length < limit ? null : (items.at(-1)?.id ?? null) };
}

/** A quota below the current usage takes nothing away; it refuses anything that would add to the usage. */
export async function changeOrg(
  { db }: Pick<OrgContext, 'db'>,
  id: string,
  request: ChangeOrgRequest,
): Promise<OrgDetails> {
  return db.transaction(async (tx) => {
    const org = await lockOrg(tx, id);
    if (org === undefined) throw noSuchOrg(id);
    const quotas = changed(org.quotas, request.quotas ?? {});
    const { deletePausedAfterSeconds = org.deletePausedAfterSeconds } = request;
    await updateQuotas(tx, id, quotas);
    await updateOrgRetention(tx, id, deletePausedAfterSeconds);
    return { ...org, quotas, deletePausedAfterSeconds, used: await quotaUsage(tx, id) };
  });
}

/** Refuses while the organisation still has anything that can be used. */
export async function deleteOrg({ db, clock }: OrgContext, id: string): Promise<OrgView> {
  if (id === DEFAULT_ORG) {
    throw new TorporError(
      'conflict',
      'The default organisation cannot be deleted: its keys manage all others.',
    );
  }
  return db.transaction(async (tx) => {
    // The lock prevents new keys and sandboxes until the decision is made.
    const org = await lockOrg(tx, id);
    if (org === undefined) throw noSuchOrg(id);
    const left = await whatIsLeft(tx, id, clock.now());
    if (Object.values(left).some((count) => count > 0)) {
      throw new TorporError('conflict', `The organisation "${id}" is not empty.`, {
        hint: 'Kill its sandboxes, delete its checkpoints and templates, end its sessions and builds, delete its webhooks and secrets, and revoke its keys.',
        details: left,
      });
    }
    // Those that were made for rules of its sandboxes, which are gone.
    await tx.query('DELETE FROM secrets WHERE org = $1', [id]);
    await markOrgDeleted(tx, id, clock.now());
    return org;
  });
}

async function whatIsLeft(tx: Queryable, org: string, now: number) {
  const count = async (what: string) => {
    const [row] = await tx.query<{ n: number }>(`SELECT COUNT(*) AS n FROM ${what}`, [org]);
    return row?.n ?? 0;
  };
  return {
    sandboxes: await count(`sandboxes WHERE org = $1 AND state NOT IN ('killed', 'failed', 'lost')`),
    checkpoints: await count(`checkpoints WHERE org = $1 AND state <> 'deleted' AND kept = 1`),
    templates: await count('templates WHERE org = $1'),
    sessions: await count('sessions WHERE org = $1 AND ended_at IS NULL'),
    builds: await count('build_jobs WHERE org = $1 AND completed_at IS NULL'),
    webhooks: await count('webhooks WHERE org = $1'),
    secrets: await count('secrets WHERE org = $1 AND generated = 0'),
    keys: await countValidKeys(tx, org, now),
  };
}

const UNLIMITED = Object.fromEntries(QUOTA_NAMES.map((name) => [name, null])) as Quotas;

function changed(before: Quotas, change: QuotaChange): Quotas {
  const entries = QUOTA_NAMES.map((name) => [name, change[name] === undefined ? before[name] : change[name]]);
  return Object.fromEntries(entries) as Quotas;
}
