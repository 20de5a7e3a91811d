/** The networks that the server itself may connect to, as the operator writes them. */
import { isNetwork } from '@torpor/webhooks';
import { z } from 'zod';

const network = z.string().refine(isNetwork, { message: 'is not an IPv4 network such as 10.1.0.0/16' });

/** Separated by commas, or a list. */
export const networksSchema = z.preprocess(
  (given) => (typeof given === 'string' ? given.split(',').map((part) => part.trim()) : given),
  z.array(network).max(100),
);
