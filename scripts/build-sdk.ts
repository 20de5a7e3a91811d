/** `npm run build:sdk`: the SDK as it is published, in packages/sdk/dist. `npm publish packages/sdk/dist` is the rest. */
import { join } from 'node:path';
import { buildSdk } from './sdk-package/build.ts';

const into = join(import.meta.dirname, '../packages/sdk/dist');
await buildSdk(into);
console.log(into);
