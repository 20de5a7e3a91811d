/** `npm run build`: the agent's bundle in `dist/`. */
import { bundleAgent } from './src/bundle.ts';

console.log(await bundleAgent());
