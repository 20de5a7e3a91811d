/** Several gateways that pass requests on to each other. A test says where each sandbox lives. */
import { randomBytes } from 'node:crypto';
import type { RequestListener } from 'node:http';
import type { Location } from '@torpor/engine';
import type { SandboxId, TorporError } from '@torpor/protocol';
import { type HopRefusal, HopSigner } from '../src/hop/hop-signature.ts';
import { type GatewayWorld, makeGatewayWorld, type WorldOptions } from './gateway-world.ts';

export const CLUSTER_SECRET = Buffer.from('the secret of all nodes of tests');

export interface HopNode extends GatewayWorld {
  readonly name: string;
  readonly signer: HopSigner;
  /** How often the directory was asked. */
  readonly lookUps: () => number;
  readonly refusedHops: HopRefusal[];
  readonly failures: TorporError[];
}

export interface HopWorld extends AsyncDisposable {
  readonly nodes: Readonly<Record<string, HopNode>>;
  /** What the directory of every node says about a sandbox; `undefined`: it lives wherever it is asked for. */
  readonly homes: Map<SandboxId, string | Location>;
  /** The address of a node, as the others know it. */
  readonly addresses: Map<string, string>;
}

export interface HopNodeOptions extends WorldOptions {
  readonly secrets?: readonly Uint8Array[];
  readonly now?: () => number;
  readonly api?: RequestListener;
}

export async function makeHopWorld(options: Readonly<Record<string, HopNodeOptions>>): Promise<HopWorld> {
  const homes: HopWorld['homes'] = new Map();
  const addresses: HopWorld['addresses'] = new Map();
  const nodes: Record<string, HopNode> = {};
  for (const [name, given] of Object.entries(options)) {
    const refusedHops: HopRefusal[] = [];
    const failures: TorporError[] = [];
    let lookUps = 0;
    const signer = new HopSigner({
      self: name,
      secrets: given.secrets ?? [CLUSTER_SECRET],
      now: given.now ?? Date.now,
      randomBytes,
      windowMs: 30_000,
    });
    const nodeByName = async (node: string) => {
      const address = addresses.get(node);
      return address === undefined ? undefined : { node, address };
    };
    const world = await makeGatewayWorld({
      ...given,
      hop: {
        signer,
        nodes: {
          self: name,
          nodeByName,
          locate: async (id) => {
            lookUps++;
            const home = homes.get(id) ?? name;
            if (typeof home !== 'string') return home;
            const address = addresses.get(home) ?? '';
            return home === name ? { is: 'here' } : { is: 'elsewhere', node: home, address };
          },
        },
        observe: {
          passedOn: () => {},
          refusedHop: (why) => void refusedHops.push(why),
          failed: (_, error) => void failures.push(error),
        },
      },
    });
    addresses.set(name, `${given.tls === undefined ? 'http' : 'https'}://127.0.0.1:${world.port}`);
    nodes[name] = { ...world, name, signer, lookUps: () => lookUps, refusedHops, failures };
  }
  return {
    nodes,
    homes,
    addresses,
    async [Symbol.asyncDispose]() {
      // Connections between the nodes would keep the servers open.
      for (const node of Object.values(nodes)) await node.gateway.stop(AbortSignal.abort());
      for (const node of Object.values(nodes)) await node[Symbol.asyncDispose]();
    },
  };
}
