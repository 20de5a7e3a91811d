/** The server as a program of its own. */
import { serve } from './serve.ts';

// Whoever reads what we print may be gone; that is no reason to stop.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

process.exit(await serve(process.argv.slice(2), process.env));
