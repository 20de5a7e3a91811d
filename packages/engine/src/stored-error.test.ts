import { TorporError } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { parseStoredError } from './stored-error.ts';

describe('an error in the database', () => {
  it('is read as it was written', () => {
    const error = new TorporError('checkpoint_missing', 'It is gone.', {
      checkpointId: 'ckpt_a',
      retryable: true,
      hint: 'Look again.',
      details: { part: 'memory' },
    });
    expect(parseStoredError(JSON.stringify(error.toBody()))).toEqual(error.toBody());
    expect(parseStoredError(null)).toBeNull();
  });

  it('with a code of a newer version is an internal error', () => {
    const body = { ...new TorporError('timeout', 'Too long.').toBody(), code: 'from_the_future' };
    expect(parseStoredError(JSON.stringify(body))).toMatchObject({ code: 'internal', message: 'Too long.' });
  });

  it('of another shape is refused', () => {
    expect(() => parseStoredError('{"code":1}')).toThrow('cannot be read');
  });
});
