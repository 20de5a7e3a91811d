/** The entry point for the server: the secrets of all organisations. */
import { createHmac } from 'node:crypto';
import {
  type Clock,
  type Database,
  lockOrg,
  type SecretNames,
  type SecretSource,
  type UsableSecret,
} from '@torpor/engine';
import {
  type Page,
  pageOf,
  type SandboxId,
  type SecretView,
  type SetSecretRequest,
  TorporError,
} from '@torpor/protocol';
import { type BoundTo, decrypt, encrypt } from './encrypted-value.ts';
import {
  countSecrets,
  deleteSecret,
  deleteUnused,
  existingNames,
  findSecret,
  listSecrets,
  type Secret,
  secretsOfSandbox,
  toView,
  upsertSecret,
} from './secret.ts';

export interface SecretsParts {
  readonly db: Database;
  readonly clock: Clock;
  /** From `encryptionKey`. */
  readonly key: Uint8Array;
  readonly randomBytes: (n: number) => Uint8Array;
}

/** A header that the rules of a request set, without a name of its own. */
export type RuleSecret = Pick<SetSecretRequest, 'host' | 'header' | 'value'>;

const MAX_PER_ORG = 1_000;
const MAX_GENERATED = 10_000;
const HOUR_MS = 3_600_000;

export class Secrets implements SecretSource, SecretNames {
  readonly #parts: SecretsParts;

  constructor(parts: SecretsParts) {
    this.#parts = parts;
  }

  /** Creates the secret or replaces it as a whole. Requests from now on use the new one. */
  async set(org: string, name: string, request: SetSecretRequest): Promise<SecretView> {
    return toView(await this.#put(org, name, request, false));
  }

  async get(org: string, name: string): Promise<SecretView> {
    return toView(await this.#named(org, name));
  }

  /** Cursors are names. */
  async list(org: string, cursor: string, limit: number): Promise<Page<SecretView>> {
    const found = await listSecrets(this.#parts.db, org, cursor, limit + 1);
    return pageOf(found.map(toView), limit, ({ name }) => name);
  }

  /** Sandboxes that name it go on without it. */
  async delete(org: string, name: string): Promise<SecretView> {
    const secret = await this.#named(org, name);
    await this.#parts.db.transaction((tx) => deleteSecret(tx, org, name));
    return toView(secret);
  }

  /**
   * Stores headers that come with a request for one sandbox, and returns the names that the sandbox uses them by. The same
   * header with the same value has the same name, so a repeated request stores nothing new.
   */
  async putRules(org: string, rules: readonly RuleSecret[]): Promise<string[]> {
    const { db, clock, key } = this.#parts;
    await db.transaction((tx) => deleteUnused(tx, org, clock.now() - HOUR_MS));
    const names: string[] = [];
    for (const rule of rules) {
      const text = JSON.stringify([org, rule.host.toLowerCase(), rule.header.toLowerCase(), rule.value]);
      const name = `rule_${createHmac('sha256', key).update(text).digest('hex').slice(0, 40)}`;
      await this.#put(org, name, rule, true);
      names.push(name);
    }
    return names;
  }

  async find(sandboxId: SandboxId, names: readonly string[]): Promise<UsableSecret[]> {
    const found = await secretsOfSandbox(this.#parts.db, sandboxId, names);
    return found.map((secret) => {
      const { name, host, header, methods, path, prefix } = secret;
      const content = (prefix ?? '') + decrypt(this.#parts.key, secret.value, secret);
      return { name, host, header, methods, path, content };
    });
  }

  async missing(org: string, names: readonly string[]): Promise<string[]> {
    const existing = await existingNames(this.#parts.db, org, names);
    return names.filter((name) => !existing.includes(name));
  }

  async #put(org: string, name: string, request: SetSecretRequest, generated: boolean): Promise<Secret> {
    const { db, clock, key, randomBytes } = this.#parts;
    const { value, header, prefix = null, methods = null, path = null } = request;
    const boundTo: BoundTo = { org, name, host: request.host.toLowerCase(), header, prefix };
    const now = clock.now();
    return db.transaction(async (tx) => {
      // The lock keeps the count right, and the organisation from being deleted meanwhile.
      if ((await lockOrg(tx, org)) === undefined)
        throw new TorporError('not_found', `There is no organisation "${org}".`);
      const existing = await findSecret(tx, org, name);
      if (existing !== undefined && existing.generated !== generated)
        throw new TorporError('conflict', `The name ${name} belongs to a rule of a sandbox.`);
      if (existing === undefined) {
        const limit = generated ? MAX_GENERATED : MAX_PER_ORG;
        const used = await countSecrets(tx, org, generated);
        if (used >= limit) throw tooMany(limit, used);
      }
      const encrypted = encrypt(key, value, boundTo, randomBytes);
      const createdAt = existing?.createdAt ?? now;
      const secret = { ...boundTo, methods, path, value: encrypted, generated, createdAt, updatedAt: now };
      await upsertSecret(tx, secret);
      return secret;
    });
  }

  async #named(org: string, name: string): Promise<Secret> {
    const secret = await findSecret(this.#parts.db, org, name);
    if (secret === undefined || secret.generated)
      throw new TorporError('not_found', `There is no secret ${name}.`);
    return secret;
  }
}

function tooMany(limit: number, used: number): TorporError {
  return new TorporError('quota_exceeded', `The organisation has ${used} secrets, and may have ${limit}.`, {
    hint: 'Delete one first: torpor secret rm.',
    details: { quota: 'secrets', limit, used },
  });
}
