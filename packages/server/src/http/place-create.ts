/**
 * A sandbox is created on the node that placement chooses. When that is another node, the request is passed on to it as the
 * client sent it: the other node checks it, and answers it.
 */
import { type ClientResponse, passedOnBy } from '@torpor/gateway';
import type { CreateRequest } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { jsonTextOf } from './json-body.ts';

/** Whether the request was passed on. The caller sends nothing then. */
export async function passOnCreate(
  { engine, gateway }: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  wanted: CreateRequest,
): Promise<boolean> {
  const hop = gateway?.hop;
  // A request that was passed on is answered here, whatever this node would choose.
  if (hop === undefined || passedOnBy(request.raw) !== undefined) return false;
  const place = await request.deadline.run(() => engine.placeOf(request.identity.org, wanted));
  if (place.is === 'here') return false;
  request.deadline.release();
  reply.hijack();
  hop.passOnTo(place, request.raw, reply.raw as ClientResponse, Buffer.from(jsonTextOf(request)));
  return true;
}
