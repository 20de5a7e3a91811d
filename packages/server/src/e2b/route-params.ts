/** Path parameters of E2B's routes. */
import { z } from 'zod';
import { sandboxIdParam } from '../http/route-schema.ts';

/** Both APIs accept a sandbox id with and without its prefix. */
export const idParams = z.object({ id: sandboxIdParam });
export const templateParams = z.object({ id: z.string().min(1).max(200) });
