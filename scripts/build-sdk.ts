/** `npm run build:sdk`: builds the published form of the SDK in packages/sdk/dist, for `npm publish packages/sdk/dist`. */
import { join } from 'node:path';
import { buildSdk } from './sdk-package/build.ts';

const into = join(import.meta.dirname, '../packages/sdk/dist');
await buildSdk(into);
console.log(into);
