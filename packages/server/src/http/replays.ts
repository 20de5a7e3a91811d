/**
 * Idempotency keys of requests that are not operations: the answer is stored and sent again. (Operations store their
 * keys in their own rows, in the engine.)
 *
 * All these requests can be repeated without harm, so losing an answer in a crash before it is stored costs nothing.
 */
import { createHash } from 'node:crypto';
import type { Clock, Database } from '@torpor/engine';
import { isErrorBody, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { idempotencyKeyOf } from './caller.ts';

export interface Answer<T> {
  readonly body: T;
  /** The error that a repeated request gets, when the answer may be sent only once. */
  readonly again?: TorporError;
}

interface Scope {
  readonly org: string;
  readonly route: string;
  readonly key: string;
  readonly bodyHash: string;
}

export interface ReplayContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly keptMs: number;
}

export class Replays {
  readonly #ctx: ReplayContext;
  /** Identical requests that arrive while the first one runs wait for its answer. */
  readonly #underWay = new Map<
    string,
    { readonly bodyHash: string; readonly answer: Promise<Answer<unknown>> }
  >();

  constructor(ctx: ReplayContext) {
    this.#ctx = ctx;
  }

  /**
   * `thing` distinguishes requests of one route beyond their bodies. `failures: 'forget'` frees the key after every
   * failure, so that a corrected request may use the same key.
   */
  async once<T>(
    request: FastifyRequest,
    thing: string,
    work: () => Promise<Answer<T>>,
    failures: 'keep' | 'forget' = 'keep',
  ): Promise<T> {
    const key = idempotencyKeyOf(request);
    if (key === undefined) return (await work()).body;
    const scope: Scope = {
      org: request.identity.org,
      route: `${request.method} ${request.routeOptions.url ?? ''} ${thing}`,
      key,
      bodyHash: createHash('sha256')
        .update(JSON.stringify(request.body ?? {}))
        .digest('hex'),
    };
    const name = JSON.stringify([scope.org, scope.route, scope.key]);
    const identical = this.#underWay.get(name);
    if (identical !== undefined) {
      refuseOtherBody(identical.bodyHash, scope);
      const { body, again } = (await identical.answer) as Answer<T>;
      if (again !== undefined) throw again;
      return body;
    }
    const answer = this.#answer(scope, work, failures).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, { bodyHash: scope.bodyHash, answer });
    return (await answer).body;
  }

  async #answer<T>(
    scope: Scope,
    work: () => Promise<Answer<T>>,
    failures: 'keep' | 'forget',
  ): Promise<Answer<T>> {
    const known = await this.#find<T>(scope);
    if (known !== undefined) return known;
    try {
      const answer = await work();
      await this.#remember(scope, answer.again ?? answer);
      return answer;
    } catch (thrown) {
      // A retryable or internal failure frees the key for another try.
      const isFinal = thrown instanceof TorporError && !thrown.retryable && thrown.code !== 'internal';
      if (isFinal && failures === 'keep') await this.#remember(scope, thrown);
      throw thrown;
    }
  }

  async #find<T>(scope: Scope): Promise<Answer<T> | undefined> {
    const [row] = await this.#ctx.db.query<{ body_hash: string; failed: number; answer: string }>(
      `SELECT body_hash, failed, answer FROM request_replays
       WHERE org = $1 AND route = $2 AND key = $3 AND expires_at > $4`,
      [scope.org, scope.route, scope.key, this.#ctx.clock.now()],
    );
    if (row === undefined) return undefined;
    refuseOtherBody(row.body_hash, scope);
    const body: unknown = JSON.parse(row.answer);
    if (row.failed === 0) return { body: body as T };
    if (!isErrorBody(body)) throw new TorporError('internal', 'The stored answer cannot be read.');
    throw TorporError.fromBody(body);
  }

  /** Keeps the first stored answer: an identical request on another server may have been faster. */
  async #remember(scope: Scope, answer: Answer<unknown> | TorporError): Promise<void> {
    const now = this.#ctx.clock.now();
    const failed = answer instanceof TorporError;
    const body = failed ? answer.toBody() : answer.body;
    await this.#ctx.db.transaction(async (tx) => {
      await tx.query('DELETE FROM request_replays WHERE expires_at <= $1', [now]);
      await tx.query(
        `INSERT INTO request_replays (org, route, key, body_hash, failed, answer, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (org, route, key) DO NOTHING`,
        [
          scope.org,
          scope.route,
          scope.key,
          scope.bodyHash,
          failed ? 1 : 0,
          JSON.stringify(body),
          now + this.#ctx.keptMs,
        ],
      );
    });
  }
}

function refuseOtherBody(bodyHash: string, scope: Scope): void {
  if (bodyHash === scope.bodyHash) return;
  throw new TorporError(
    'idempotency_mismatch',
    `The idempotency key "${scope.key}" was used with another body.`,
  );
}
