/**
 * Leaves out what the page does not use of the protocol and of its schema library: unused schemas, and the library's
 * messages in every language. They would be most of the bundle.
 */
import { readFile } from 'node:fs/promises';
import type { Plugin } from 'esbuild';

export const smallSchemas: Plugin = {
  name: 'small-schemas',
  setup(bundler) {
    // Marks the protocol as free of side effects, so that esbuild drops its unused schemas.
    bundler.onResolve({ filter: /^@torpor\/protocol$|^\.\.?\// }, async ({ path, pluginData, ...where }) => {
      const isProtocol = path === '@torpor/protocol' || where.importer.includes('/packages/protocol/');
      if (pluginData === smallSchemas || !isProtocol) return undefined;
      const found = await bundler.resolve(path, { ...where, pluginData: smallSchemas });
      return { path: found.path, errors: found.errors, sideEffects: false };
    });
    // esbuild drops unused members of a namespace import, but not of an object that a module exports.
    bundler.onLoad({ filter: /\/packages\/(?:protocol|sdk)\/src\/.*\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      return {
        contents: source.replace("import { z } from 'zod';", "import * as z from 'zod';"),
        loader: 'ts',
      };
    });
  },
};
