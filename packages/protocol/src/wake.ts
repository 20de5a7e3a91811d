/** Whether a request that needs a running sandbox wakes a paused one. */
import { z } from 'zod';

export const wakeQuerySchema = z
  .enum(['true', 'false'])
  .default('true')
  .meta({ description: 'With `false` a paused sandbox is not woken; the answer is then a `conflict`.' });
