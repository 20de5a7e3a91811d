/** The uploads for template builds that other nodes have. */
import type { Engine } from '@torpor/engine';
import type { HopSigner } from '@torpor/gateway';
import { TorporError } from '@torpor/protocol';
import type { FindRemoteUpload, RemoteUpload } from '@torpor/template-builds';
import { askNode } from './node-client.ts';

/** The digest of the upload that an answer brings. */
export const UPLOAD_DIGEST_HEADER = 'torpor-upload-sha256';

/** Asks one node after the other. A node that does not answer has nothing. */
export function remoteUploads(engine: Pick<Engine, 'nodes'>, signer: HopSigner): FindRemoteUpload {
  return async (org, hash, signal) => {
    const target = `/v1/cluster/template-files/${hash}?org=${encodeURIComponent(org)}`;
    for (const { name, address, self, state } of await engine.nodes()) {
      if (self || state !== 'alive') continue;
      const found = await find(signer, { node: name, address }, target, signal);
      if (found !== undefined) return found;
    }
    return undefined;
  };
}

async function find(
  signer: HopSigner,
  to: Parameters<typeof askNode>[1],
  target: string,
  signal: AbortSignal | undefined,
): Promise<RemoteUpload | undefined> {
  try {
    const response = await askNode(signer, to, { method: 'GET', target, signal });
    return { sha256: String(response.headers[UPLOAD_DIGEST_HEADER]), content: response };
  } catch (thrown) {
    signal?.throwIfAborted();
    if (thrown instanceof TorporError) return undefined;
    throw thrown;
  }
}
