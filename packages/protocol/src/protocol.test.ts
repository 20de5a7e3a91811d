import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ERROR_CODES, type ErrorCode, factsOf, TorporError } from './errors.ts';
import { EVENT_TYPES } from './events.ts';
import { bareSandboxId, isId, makeId, parseSandboxId } from './ids.ts';
import { createRequestSchema, forkRequestSchema, resumeRequestSchema } from './requests.ts';
import { FOREIGN_STATES, SANDBOX_STATES } from './states.ts';
import { operationViewSchema, sandboxViewSchema } from './views.ts';

describe('ids', () => {
  it('have a prefix for their kind and twenty characters (R110)', () => {
    let n = 0;
    const id = makeId('sbx', (length) => Uint8Array.from({ length }, () => n++ % 256));
    expect(id).toMatch(/^sbx_[a-z0-9]{20}$/);
    expect(isId('sbx', id)).toBe(true);
    expect(isId('ckpt', id)).toBe(false);
  });

  it('are uniformly distributed: bytes past the last full round of the alphabet are skipped', () => {
    let calls = 0;
    const id = makeId('op', (length) => new Uint8Array(length).fill(calls++ === 0 ? 255 : 0));
    expect(id).toBe(`op_${'a'.repeat(20)}`);
  });

  it('of sandboxes are accepted with and without their prefix', () => {
    const bare = 'a'.repeat(20);
    expect(parseSandboxId(bare)).toBe(`sbx_${bare}`);
    expect(parseSandboxId(`sbx_${bare}`)).toBe(`sbx_${bare}`);
    expect(bareSandboxId(`sbx_${bare}`)).toBe(bare);
    for (const wrong of [
      '',
      'sbx_',
      `ckpt_${bare}`,
      `${bare}a`,
      `${'A'.repeat(20)}`,
      `${'a'.repeat(19)}-`,
      '../etc',
    ]) {
      expect(parseSandboxId(wrong), wrong).toBeUndefined();
    }
  });
});

describe('errors', () => {
  it('each have a status, an exit code and a hint', () => {
    for (const code of ERROR_CODES) {
      const facts = factsOf(code);
      expect(facts.http, code).toBeGreaterThanOrEqual(400);
      expect([1, 10, 11, 12, 13, 14, 15], code).toContain(facts.exit);
      expect(facts.hint.length, code).toBeGreaterThan(10);
    }
  });

  it('distinguish expired, unreachable and the kinds of unusable checkpoints (R91)', () => {
    const codes: ErrorCode[] = [
      'checkpoint_missing',
      'checkpoint_corrupt',
      'checkpoint_unreadable',
      'unreachable',
      'expired',
    ];
    expect(codes.map((code) => [factsOf(code).http, factsOf(code).retryable])).toEqual([
      [409, false],
      [409, false],
      [503, true],
      [503, true],
      [410, false],
    ]);
  });

  it('survive serialisation unchanged', () => {
    const error = new TorporError('checkpoint_missing', 'gone', {
      sandboxId: 'sbx_a',
      checkpointId: 'ckpt_b',
      retryAfterMs: 5,
      details: { location: 'there' },
      cause: new Error('secret'),
    });
    const back = TorporError.fromBody(JSON.parse(JSON.stringify(error.toBody())));
    expect(back.toBody()).toEqual(error.toBody());
    expect(JSON.stringify(error.toBody())).not.toContain('secret');
  });

  it('become internal for unknown causes, without revealing the cause to clients (R114)', () => {
    const error = TorporError.from(new Error('password=hunter2'));
    expect(error.code).toBe('internal');
    expect(JSON.stringify(error.toBody())).not.toContain('hunter2');
    expect(TorporError.from(error)).toBe(error);
  });
});

describe('states', () => {
  it('have exactly one state for each word of the documents (R84)', () => {
    for (const state of Object.values(FOREIGN_STATES)) expect(SANDBOX_STATES).toContain(state);
    expect(Object.keys(FOREIGN_STATES)).toHaveLength(9);
  });
});

describe('requests', () => {
  it('refuse unknown fields, values out of range, and contradictions', () => {
    const ckpt = `ckpt_${'a'.repeat(20)}`;
    for (const wrong of [
      { timeoutSecond: 5 },
      { timeoutSeconds: 0 },
      { timeoutSeconds: 1.5 },
      { timeoutSeconds: 1e12 },
      { env: { 'A=B': 'c' } },
      { name: '../x' },
      { template: 'base', from: ckpt },
      { from: 'sbx_aaaaaaaaaaaaaaaaaaaa' },
      {
        services: [
          { name: 'a', command: 'x' },
          { name: 'a', command: 'y' },
        ],
      },
      { services: [{ name: 'a', command: 'x', port: 70_000 }] },
      { onIdle: 'explode' },
      { metadata: { a: 1 } },
    ]) {
      expect(createRequestSchema.safeParse(wrong).success, JSON.stringify(wrong)).toBe(false);
    }
    expect(createRequestSchema.parse({ from: ckpt, name: 'my-app' })).toEqual({ from: ckpt, name: 'my-app' });
    expect(forkRequestSchema.safeParse({ template: 'base' }).success).toBe(false);
    expect(resumeRequestSchema.safeParse({ fallback: ['anything'] }).success).toBe(false);
  });
});

describe('the schemas', () => {
  it('can be converted to JSON Schema, each under its own name, for the OpenAPI document', () => {
    for (const schema of [
      createRequestSchema,
      sandboxViewSchema,
      operationViewSchema,
    ] satisfies z.ZodType[]) {
      const name = schema.meta()?.id;
      expect(z.toJSONSchema(schema)).toMatchObject({ $defs: { [String(name)]: { type: 'object' } } });
    }
    expect(new Set(EVENT_TYPES).size).toBe(EVENT_TYPES.length);
  });
});
