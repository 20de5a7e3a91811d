/** A registry that asks for credentials, with an image for the program to build on. */
import { startRegistry, type TestRegistry, testImage } from '@torpor/images/testing';
import { tinyRoot } from '../../packages/runtime-gvisor/testing/tiny-root.ts';

export async function registryWithImage(): Promise<TestRegistry & { readonly image: string }> {
  const registry = await startRegistry({ credentials: true });
  const config = { Env: ['OF_IMAGE=yes'] };
  await registry.push('tiny', '1', testImage([await tinyRoot({ '/srv/note': 'x' })], { config }));
  return { ...registry, image: `${registry.name}/tiny:1` };
}
