/**
 * Requests that belong to another node, which their path does not say. The request is passed on to that node as the client sent
 * it: the other node checks it, and answers it.
 */
import type { Location, NodeDirectory } from '@torpor/engine';
import { type ClientResponse, passedOnBy } from '@torpor/gateway';
import type { CreateRequest, SandboxId } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { jsonTextOf } from './json-body.ts';

type Context = Pick<RouteContext, 'engine' | 'gateway'>;

/** Whether the request was passed on. The caller sends nothing then. `find` is not called on a server that is alone. */
export async function passOn(
  { engine, gateway }: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  find: (directory: NodeDirectory) => Promise<Location>,
): Promise<boolean> {
  const hop = gateway?.hop;
  // A request that was passed on is answered here, whatever this node would choose.
  if (hop === undefined || passedOnBy(request.raw) !== undefined) return false;
  const location = await request.deadline.run(() => find(engine.directory));
  // The engine of this node has the reason why a node cannot be reached.
  if (location.is !== 'elsewhere') return false;
  request.deadline.release();
  reply.hijack();
  hop.passOnTo(location, request.raw, reply.raw as ClientResponse, Buffer.from(jsonTextOf(request)));
  return true;
}

/** A sandbox is created on the node that placement chooses. */
export function passOnCreate(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  wanted: CreateRequest,
): Promise<boolean> {
  return passOn(ctx, request, reply, () => ctx.engine.placeOf(request.identity.org, wanted));
}

/** `find` resolves to the sandbox that the request is about, or to null when it is about none. */
export function passOnToSandbox(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  find: () => Promise<SandboxId | null>,
): Promise<boolean> {
  return passOn(ctx, request, reply, async (directory) => {
    const id = await find();
    return id === null ? { is: 'here' } : directory.locate(id);
  });
}
