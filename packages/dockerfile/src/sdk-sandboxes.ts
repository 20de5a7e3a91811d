/** The sandboxes of a build, by the SDK. */
import { CACHE_SECONDS, type StepSandboxes } from '@torpor/build-steps';
import type { Torpor } from '@torpor/sdk';

export interface SdkSandboxesOptions {
  readonly torpor: Torpor;
  /** The name of the template that is built. */
  readonly name: string;
  readonly signal: AbortSignal;
  newName(): string;
  /** Output of a step. */
  output(data: string): void;
}

export function sdkSandboxes(options: SdkSandboxesOptions): StepSandboxes {
  const { torpor, signal } = options;
  const { sandboxes } = torpor;
  return {
    findStep: async (name) => (await torpor.checkpoints.named(name, { signal }))[0]?.id,
    create: async (origin, resources) => {
      const name = options.newName();
      const metadata = { 'template-build': options.name };
      const { id } = await sandboxes.create({ ...origin, name, metadata, resources }, { signal });
      return { id, name };
    },
    run: async ({ id }, { quiet = false, ...command }) => {
      for await (const event of sandboxes.execStream(id, { ...command }, { signal })) {
        if (!quiet && (event.type === 'stdout' || event.type === 'stderr')) options.output(event.data);
        if (event.type === 'end') return event.exitCode;
      }
      throw new Error('The stream of a command ended without its end.');
    },
    write: async ({ id }, path, content) => {
      const body = ReadableStream.from(content) as ReadableStream<Uint8Array>;
      await sandboxes.files(id).write(path, body, { user: 'root', signal });
    },
    read: ({ id }, path) => sandboxes.files(id).read(path, { user: 'root', signal }),
    seal: async ({ id }, name) => {
      const sealed = await sandboxes.snapshot(id, { name, expiresInSeconds: CACHE_SECONDS }, { signal });
      return sealed.id;
    },
    kill: async ({ id }) => {
      await sandboxes.kill(id);
    },
  };
}
