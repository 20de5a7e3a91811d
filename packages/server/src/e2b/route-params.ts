/** The words that the schemas of this face are put together from. */
import { z } from 'zod';
import { sandboxIdParam } from '../http/route-schema.ts';

/** Every face takes an id with and without what it begins with. */
export const idParams = z.object({ id: sandboxIdParam });
export const templateParams = z.object({ id: z.string().min(1).max(200) });
